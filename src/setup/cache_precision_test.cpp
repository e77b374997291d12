#include "setup/cache_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::setup {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

config::RunConfig on_policy(const std::string& dtype, const std::string& cache) {
  config::RunConfig config;
  config.true_on_policy = true;
  config.dtype = dtype;
  config.sglang_kv_cache_dtype = cache;
  return config;
}

TEST(CachePrecision, IsWhatTheFlagsSay) {
  config::RunConfig config = on_policy("bfloat16", "auto");
  config.true_on_policy = false;
  EXPECT_EQ(kv_cache_dtype(config, at::kFloat), "auto");
}

TEST(CachePrecision, OnPolicyIsThatOfTheActivations) {
  EXPECT_EQ(kv_cache_dtype(on_policy("bfloat16", "auto"), at::kFloat), "float32");
  EXPECT_EQ(kv_cache_dtype(on_policy("bfloat16", "auto"), at::kBFloat16), "auto");
  EXPECT_EQ(kv_cache_dtype(on_policy("float32", "float32"), at::kFloat), "float32");
}

TEST(CachePrecision, ThatRoundsWhatTheTrainerComputesIsRefused) {
  EXPECT_THAT([] { kv_cache_dtype(on_policy("bfloat16", "bf16"), at::kFloat); },
              ThrowsMessage<ConfigError>(HasSubstr("--sglang-kv-cache-dtype bfloat16 rounds")));
}

}  // namespace
}  // namespace slime::setup
