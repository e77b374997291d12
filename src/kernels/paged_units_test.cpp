#include "kernels/paged_units.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace slime::kernels {
namespace {

const UnitOptions kH200{.group = 4, .num_kv_heads = 8, .num_processors = 132};

std::vector<PagedSpan> decode_of(std::vector<int64_t> lengths) {
  std::vector<PagedSpan> spans;
  for (const int64_t length : lengths) spans.push_back({1, length});
  return spans;
}

/// Keys of each sequence that the units cover, by (sequence, first key).
int64_t covered_keys(const UnitPlan& plan, const std::vector<PagedSpan>& spans) {
  std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
  int64_t keys = 0;
  for (int64_t u = 0; u < plan.num_units; ++u) {
    if (!plan.is_on_U[u]) continue;
    EXPECT_TRUE(seen.insert({plan.sequence_U[u], plan.tile_U[u], plan.chunk_U[u]}).second);
    const int64_t begin = int64_t{plan.chunk_U[u]} * plan.chunk_tokens;
    keys += std::min<int64_t>(spans[plan.sequence_U[u]].num_keys - begin, plan.chunk_tokens);
  }
  return keys;
}

TEST(PagedUnits, OfDecodeCoverEachKeyOnceInAConstantNumberOfUnits) {
  for (const auto& lengths : {std::vector<int64_t>{1}, {5000}, {1, 16, 17, 4096}, {128, 128}}) {
    const auto spans = decode_of(lengths);
    const UnitPlan plan = plan_decode(spans, 4, kH200);
    int64_t keys = 0;
    for (const int64_t length : lengths) keys += length;
    EXPECT_EQ(covered_keys(plan, spans), keys);
    EXPECT_EQ(plan.num_units, decode_units(4, kH200));
    EXPECT_EQ(plan.chunk_tokens % 16, 0);
    EXPECT_EQ(plan.merge_starts.size(), 5U);
    EXPECT_LE(plan.merge_starts.back(), plan.num_units);
  }
}

TEST(PagedUnits, OfAFullBatchAreOnePerSequenceTheLongestFirst) {
  std::vector<int64_t> lengths(256, 100);
  lengths[200] = 2000;
  const UnitPlan plan = plan_decode(decode_of(lengths), 256, kH200);
  EXPECT_FALSE(plan.splits);
  EXPECT_EQ(plan.num_units, 256);
  EXPECT_EQ(plan.sequence_U[0], 200);
}

TEST(PagedUnits, OfAMixedStepSeparateDecodeFromPrompts) {
  const std::vector<PagedSpan> spans{{1, 700}, {300, 300}, {1, 3}, {40, 1000}};
  const auto plans = plan_mixed(spans, kH200);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].tile, 128);
  EXPECT_EQ(plans[0].num_units, 10 + 2) << "300 and 40 rows of 4 heads in tiles of 128";
  EXPECT_EQ(plans[0].sequence_U[0], 3) << "the one with the most keys";
  EXPECT_EQ(plans[0].tile_U[0], 1) << "its last rows, which see the most keys";
  EXPECT_EQ(plans[1].tile, 16);
  EXPECT_EQ(plans[1].num_units, 2);
}

}  // namespace
}  // namespace slime::kernels
