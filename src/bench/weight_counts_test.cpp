#include "bench/weight_counts.h"

#include <gtest/gtest.h>

namespace slime::bench {
namespace {

TEST(WeightCounts, AStepReadsTheExpertsThatItsRowsVisit) {
  const WeightCounts counts{.always = 100, .expert = 10, .num_experts = 8, .experts_per_token = 2};
  EXPECT_EQ(counts.multiplied(), 120);
  EXPECT_DOUBLE_EQ(counts.read(1), 120);
  EXPECT_DOUBLE_EQ(counts.read(2), 100 + 10 * 8 * (1 - 0.75 * 0.75));
  EXPECT_NEAR(counts.read(1000), 180, 1e-9);
  EXPECT_DOUBLE_EQ(WeightCounts{.always = 7}.read(5), 7);
}

}  // namespace
}  // namespace slime::bench
