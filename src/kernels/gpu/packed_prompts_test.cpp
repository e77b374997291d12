#include "kernels/gpu/packed_prompts.h"

#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

TEST(PackedPrompts, LongOnesAttendToThemselvesAndToTheirGatheredPages) {
  std::vector<PagedSpan> spans{{1, 90}, {2000, 2000}, {1023, 1023}, {1024, 1060}, {1500, 5500}};
  const PackedPlan plan = plan_packed(spans);
  EXPECT_TRUE(plan.own.causal);
  EXPECT_EQ(plan.own.pairs,
            (std::vector<AttentionPair>{
                {1, 2001, 1, 2001}, {3024, 4048, 3024, 4048}, {4048, 5548, 4048, 5548}}));
  EXPECT_FALSE(plan.earlier.causal);
  // 36 earlier tokens are three pages, so the next prompt's begin at row 48.
  EXPECT_EQ(plan.earlier.pairs,
            (std::vector<AttentionPair>{{3024, 4048, 0, 36}, {4048, 5548, 48, 4048}}));
  ASSERT_EQ(plan.contexts.size(), 2U);
  EXPECT_EQ(plan.contexts[0].sequence, 3);
  EXPECT_EQ(plan.contexts[0].num_pages, 3);
  EXPECT_EQ(plan.contexts[1].sequence, 4);
  EXPECT_EQ(plan.contexts[1].num_pages, 250);
  EXPECT_FALSE(spans[0].is_packed || spans[2].is_packed);
  EXPECT_TRUE(spans[1].is_packed && spans[3].is_packed && spans[4].is_packed);
  EXPECT_EQ(plan_prompts(spans, 4).num_units, 1023 * 4 / 128 + 1);  // of the third alone
}

TEST(PackedPrompts, ContextsBeyondTheLimitStayInTheirPages) {
  std::vector<PagedSpan> spans{{1024, 1024 + 100000}, {1024, 1024 + 40000}, {1024, 1024 + 30000}};
  const PackedPlan plan = plan_packed(spans);
  EXPECT_EQ(plan.own.pairs.size(), 2U);
  EXPECT_FALSE(spans[1].is_packed);
  EXPECT_EQ(plan.contexts[1].sequence, 2);
}

}  // namespace
}  // namespace slime::kernels
