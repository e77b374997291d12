#include "kernels/gpu/paged_units.h"

#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

TEST(PagedUnits, OfAMixedStepSeparateDecodeFromPrompts) {
  const std::vector<PagedSpan> spans{{1, 700}, {300, 300}, {1, 3}, {40, 1000}};
  const UnitPlan prompts = plan_prompts(spans, 4);
  EXPECT_EQ(prompts.tile, 128);
  EXPECT_EQ(prompts.num_units, 10 + 2) << "300 and 40 rows of 4 heads in tiles of 128";
  EXPECT_EQ(prompts.sequence_U[0], 3) << "the one with the most keys";
  EXPECT_EQ(prompts.tile_U[0], 1) << "its last rows, which see the most keys";
  const UnitPlan decode = plan_single_rows(spans, 0, 4);
  EXPECT_EQ(decode.tile, 16);
  EXPECT_EQ(decode.sequence_U, (std::vector<int32_t>{0, 2}));
}

TEST(PagedUnits, OfFewRowsWithManyKeysSplitThem) {
  const std::vector<PagedSpan> spans{{1, 700}, {20, 4000}, {3, 100}, {1024, 2000, true}};
  // 8 key-value heads on 132 multiprocessors, twice: 33 units.
  const UnitPlan plan = plan_prompts(spans, 4, {8, 132});
  EXPECT_EQ(plan.tile, 64);
  EXPECT_EQ(plan.chunk_tokens, 512) << "the least; 2 x 4,000 + 100 keys in 33 are 246";
  EXPECT_EQ(plan.num_units, 2 * 8 + 1);
  EXPECT_EQ(plan.sequence_U.front(), 1);
  EXPECT_EQ(plan.tile_U.front(), 1);
  EXPECT_EQ(plan.chunk_U.front(), 7);
  EXPECT_EQ(plan.partial_starts, (std::vector<int32_t>{0, 0, 20 * 8, 20 * 8 + 3}));
  EXPECT_EQ(plan.num_partials, 20 * 8 + 3);
  ASSERT_EQ(plan.merge_starts.size(), 1U + 1 + 20 + 3 + 1024);
  EXPECT_EQ(plan.merge_starts[1], 0) << "the row of decode has none";
  EXPECT_EQ(plan.merge_starts[2], 8);
  EXPECT_EQ(plan.merge_starts[1 + 20 + 1], 20 * 8 + 1);
  EXPECT_EQ(plan.merge_starts.back(), plan.num_partials);
}

TEST(PagedUnits, OfManyRowsOrFewKeysDoNotSplitThem) {
  EXPECT_EQ(plan_prompts(std::vector<PagedSpan>{{20, 400}}, 4, {8, 132}).num_partials, 0);
  EXPECT_EQ(plan_prompts(std::vector<PagedSpan>{{700, 9000}}, 4, {8, 132}).num_partials, 0);
  EXPECT_EQ(plan_prompts(std::vector<PagedSpan>{{20, 9000}}, 4).num_partials, 0);
}

TEST(PagedUnits, OfWideHeadsHaveSmallTiles) {
  const std::vector<PagedSpan> spans{{200, 200}};
  EXPECT_EQ(plan_prompts(spans, 4, {1, 0, most_tile_rows(128)}).tile, 128);
  EXPECT_EQ(plan_prompts(spans, 4, {1, 0, most_tile_rows(256)}).tile, 64);
}

TEST(PagedUnits, OfARecordedStepAreAsManyAsAreLaunched) {
  const std::vector<PagedSpan> spans{{1, 700}, {1, 900}};
  const UnitPlan plan = plan_single_rows(spans, 4, 40);
  EXPECT_EQ(plan.tile, 64);
  EXPECT_EQ(plan.num_units, 4);
  EXPECT_EQ(plan.sequence_U, (std::vector<int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(plan.is_on_U, (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(plan_prompts(spans, 40).num_units, 0);
}

TEST(PagedUnits, OfFewSingleRowsSplitTheirKeys) {
  const std::vector<PagedSpan> spans{{1, 32768}, {40, 1000}, {1, 1000}};
  // 4 key-value heads on 132 multiprocessors, twice: 66 units for 33,768 keys.
  const UnitPlan plan = plan_single_rows(spans, 0, 2, {4, 132});
  EXPECT_EQ(plan.chunk_tokens, 512);
  EXPECT_EQ(plan.num_units, 64 + 2);
  EXPECT_EQ(plan.sequence_U[63], 0);
  EXPECT_EQ(plan.chunk_U[63], 63);
  EXPECT_EQ(plan.sequence_U[64], 2);
  EXPECT_EQ(plan.partial_starts, (std::vector<int32_t>{0, 64, 64}));
  EXPECT_EQ(plan.num_partials, 66);
  EXPECT_EQ(plan.merge_starts.size(), 1U + 1 + 40 + 1);
  EXPECT_EQ(plan.merge_starts.back(), 66);
  EXPECT_EQ(plan_single_rows(std::vector<PagedSpan>{{1, 500}}, 0, 2, {4, 132}).num_partials, 0)
      << "one chunk";
  EXPECT_EQ(plan_single_rows(std::vector<PagedSpan>(40, {1, 9000}), 0, 2, {4, 132}).num_partials, 0)
      << "enough units without";
}

TEST(PagedUnits, OfRecordedSingleRowsAreAsManyForAllContexts) {
  const KeySplit split{4, 132};
  for (const int64_t keys : {1, 511, 513, 4000, 32768, 131072}) {
    const std::vector<PagedSpan> spans{{1, keys}, {1, 1 + keys / 3}, {1, 7}};
    const UnitPlan plan = plan_single_rows(spans, 4, 2, split);
    EXPECT_EQ(plan.num_units, 4 + 66) << keys;
    EXPECT_EQ(plan.num_partials, 4 + 66);
    EXPECT_EQ(plan.partial_starts.size(), 4U);
    ASSERT_EQ(plan.merge_starts.size(), 5U);
    EXPECT_LE(plan.merge_starts[3], plan.num_partials);
    EXPECT_EQ(plan.merge_starts[4], plan.merge_starts[3]) << "padding has none";
    int64_t covered = 0;
    for (size_t u = 0; u < plan.is_on_U.size(); ++u)
      covered += plan.is_on_U[u] != 0 && plan.sequence_U[u] == 0 ? plan.chunk_tokens : 0;
    EXPECT_GE(covered, keys);
  }
  EXPECT_EQ(plan_single_rows(std::vector<PagedSpan>{{1, 9000}}, 40, 2, split).num_units, 40)
      << "40 rows are enough, whatever they see";
}

}  // namespace
}  // namespace slime::kernels
