#include "kernels/gpu/latent_prompts.h"

#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

TEST(LatentPrompts, OfManyRowsAreExpandedAndOthersAbsorbedLongestFirst) {
  std::vector<PagedSpan> spans{{1, 40}, {300, 300}, {2, 90}, {256, 1000}};
  const PackedPlan plan = plan_expanded(spans);
  EXPECT_FALSE(spans[0].is_packed || spans[2].is_packed);
  EXPECT_TRUE(spans[1].is_packed && spans[3].is_packed);
  // 300 tokens in 19 pages; then 1,000 tokens, of which 744 are earlier ones.
  EXPECT_EQ(plan.own.pairs,
            (std::vector<AttentionPair>{{1, 301, 0, 300}, {303, 559, 304 + 744, 304 + 1000}}));
  EXPECT_EQ(plan.earlier.pairs, (std::vector<AttentionPair>{{303, 559, 304, 304 + 744}}));
  ASSERT_EQ(plan.contexts.size(), 2U);
  EXPECT_EQ(plan.contexts[0].num_pages, 19);
  EXPECT_EQ(plan.contexts[1].num_pages, 63);
  const UnitPlan units = plan_absorbed(spans);
  EXPECT_EQ(units.sequence_U, (std::vector<int32_t>{2, 2, 0}));
  EXPECT_EQ(units.tile_U, (std::vector<int32_t>{1, 0, 0}));
}

TEST(LatentPrompts, GatherNoMoreThanThereIsRoomFor) {
  std::vector<PagedSpan> spans{{4096, kMostGatheredRows - 16}, {4096, 4096}};
  EXPECT_EQ(plan_expanded(spans).own.pairs.size(), 1U);
  EXPECT_FALSE(spans[1].is_packed);
}

}  // namespace
}  // namespace slime::kernels
