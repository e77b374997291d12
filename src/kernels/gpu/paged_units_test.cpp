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

TEST(PagedUnits, OfARecordedStepAreAsManyAsAreLaunched) {
  const std::vector<PagedSpan> spans{{1, 700}, {1, 900}};
  const UnitPlan plan = plan_single_rows(spans, 4, 40);
  EXPECT_EQ(plan.tile, 64);
  EXPECT_EQ(plan.num_units, 4);
  EXPECT_EQ(plan.sequence_U, (std::vector<int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(plan.is_on_U, (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(plan_prompts(spans, 40).num_units, 0);
}

}  // namespace
}  // namespace slime::kernels
