#include "engine/cache_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/gpu_caches.h"
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

TEST(CacheShape, OfIndexersAddsToThePagesOfTheLayersThatHaveOne) {
  model::BlockNeeds plain;
  plain.cache = {.heads = 1, .queries_per_head = 4, .key_size = 24, .value_size = 0};
  model::BlockNeeds choosing = plain;
  choosing.cache.index_size = 8;
  const std::vector<model::BlockNeeds> blocks{choosing, plain, choosing};
  EXPECT_EQ(index_size(blocks), 8);
  EXPECT_EQ(index_size(std::vector{plain}), 0);
  // Latents in bfloat16, keys of indexers in float32.
  EXPECT_EQ(gpu_page_bytes(blocks, at::kBFloat16, one_group(blocks)),
            16 * (3 * 24 * 2 + 2 * 8 * 4));
  model::BlockNeeds other = choosing;
  other.cache.index_size = 16;
  EXPECT_THROW(index_size(std::vector{choosing, other}), ConfigError);
}

}  // namespace
}  // namespace slime::engine
