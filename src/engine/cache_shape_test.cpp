#include "engine/cache_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/paged_kv_cache.h"

namespace slime::engine {
namespace {

using ::testing::HasSubstr;

model::BlockNeeds block(int64_t heads, int64_t size) {
  model::BlockNeeds needs;
  needs.cache = {.heads = heads, .queries_per_head = 4, .key_size = size, .value_size = size};
  return needs;
}

std::string problem_of(const std::vector<model::BlockNeeds>& blocks) {
  try {
    cache_of_tokens(blocks);
    return "none";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(CacheShape, IsThatOfAllLayers) {
  const std::vector<model::BlockNeeds> blocks{block(2, 12), block(2, 12)};
  EXPECT_EQ(cache_of_tokens(blocks), blocks[1].cache);
  // Two layers, two heads, 16 tokens; keys of 12 numbers, values padded to 16; bfloat16.
  EXPECT_EQ(PagedKvCache::page_bytes(blocks, at::kBFloat16), 2 * 2 * 16 * (12 + 16) * 2);
}

TEST(CacheShape, RefusesLayersThatDifferByTheirNumber) {
  EXPECT_THAT(problem_of({block(2, 16), block(2, 16), block(4, 16)}), HasSubstr("layer 2 keeps"));
}

TEST(CacheShape, OfTokensIsThatOfTheLayersThatKeepThem) {
  model::BlockNeeds recurrent;
  recurrent.cache.state_bytes = 4096;
  const std::vector<model::BlockNeeds> blocks{recurrent, block(2, 16), recurrent, block(2, 16)};
  EXPECT_EQ(cache_of_tokens(blocks), blocks[1].cache);
  EXPECT_EQ(PagedKvCache::page_bytes(blocks, at::kFloat), 2 * 2 * 16 * (16 + 16) * 4);
  EXPECT_EQ(state_bytes(blocks), 2 * 4096);
  EXPECT_THROW(cache_of_tokens(std::vector{recurrent}), ConfigError);
  EXPECT_THROW(cache_of_tokens(std::vector{block(2, 16), recurrent, block(4, 16)}), ConfigError);
}

}  // namespace
}  // namespace slime::engine
