#include "engine/drafts/step_costs.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

void observe_often(StepCosts& costs, int64_t rows, double seconds, int times = 5) {
  for (int i = 0; i < times; ++i) costs.observe(rows, seconds);
}

TEST(StepCosts, AreEqualWhileNothingIsMeasured) {
  StepCosts costs;
  EXPECT_EQ(costs.seconds(1), 1);
  EXPECT_EQ(costs.seconds(1000), 1);
}

TEST(StepCosts, AreInterpolatedBetweenNeighbours) {
  StepCosts costs;
  observe_often(costs, 8, 2.0);
  observe_often(costs, 12, 4.0);
  observe_often(costs, 16, 4.0);
  EXPECT_DOUBLE_EQ(costs.seconds(8), 2);
  EXPECT_DOUBLE_EQ(costs.seconds(10), 3);
  EXPECT_DOUBLE_EQ(costs.seconds(12), 4);
  EXPECT_DOUBLE_EQ(costs.seconds(14), 4);
}

TEST(StepCosts, OfMoreRowsThanTheOnlyMeasuredOnesLookFree) {
  StepCosts costs;
  observe_often(costs, 8, 2.0);
  EXPECT_DOUBLE_EQ(costs.seconds(12), 2);
  EXPECT_DOUBLE_EQ(costs.seconds(16), 2);
  EXPECT_DOUBLE_EQ(costs.seconds(32), 4) << "in proportion beyond twice as many";
}

TEST(StepCosts, WhereNothingIsMeasuredRowsCostWhatOthersDid) {
  StepCosts costs;
  observe_often(costs, 8, 2.0);
  observe_often(costs, 64, 9.0);
  EXPECT_DOUBLE_EQ(costs.seconds(16), 3);
  EXPECT_DOUBLE_EQ(costs.seconds(32), 5);
  EXPECT_DOUBLE_EQ(costs.seconds(128), 17);
  observe_often(costs, 16, 20.0);  // other work on the machine, for a while
  observe_often(costs, 64, 9.0);
  EXPECT_DOUBLE_EQ(costs.seconds(128), 9) << "more rows never take less time";
}

TEST(StepCosts, OfFewerRowsThanAnyMeasuredAreInProportion) {
  StepCosts costs;
  observe_often(costs, 64, 10.0);
  EXPECT_DOUBLE_EQ(costs.seconds(16), 2.5);
  observe_often(costs, 16, 9.0);
  EXPECT_DOUBLE_EQ(costs.seconds(16), 9);
}

TEST(StepCosts, OneStepAloneIsNotAMeasurement) {
  StepCosts costs;
  observe_often(costs, 8, 2.0);
  costs.observe(12, 90.0);  // the first of its kind
  EXPECT_DOUBLE_EQ(costs.seconds(12), 2);
  costs.observe(12, 3.0);
  EXPECT_DOUBLE_EQ(costs.seconds(12), 3);
}

TEST(StepCosts, SlowStepsNowAndThenSayNothing) {
  StepCosts costs;
  for (int i = 0; i < 200; ++i) {
    costs.observe(8, i % 5 == 4 ? 50.0 : 2.0);
    if (i > 0) {
      ASSERT_DOUBLE_EQ(costs.seconds(8), 2) << i;
    }
  }
}

TEST(StepCosts, FollowAChange) {
  StepCosts costs;
  observe_often(costs, 8, 2.0, 100);
  observe_often(costs, 8, 4.0, 12);
  EXPECT_NEAR(costs.seconds(8), 4, 0.15);  // ten medians of 4: 2 * 0.75^10 is left
}

TEST(StepCosts, AreForgottenAfterAThousandOtherSteps) {
  StepCosts costs;
  observe_often(costs, 12, 9.0);
  observe_often(costs, 8, 2.0, 1024);
  EXPECT_DOUBLE_EQ(costs.seconds(12), 9);
  observe_often(costs, 8, 2.0, 1);
  EXPECT_DOUBLE_EQ(costs.seconds(12), 2) << "tried again";
  costs.observe(12, 3.0);
  costs.observe(12, 3.0);
  EXPECT_DOUBLE_EQ(costs.seconds(12), 3);
}

TEST(StepCosts, OfAnyNumberOfRowsAreMeasured) {
  StepCosts costs;
  for (int64_t rows = 1; rows <= 2048; ++rows) {
    observe_often(costs, rows, 1.0, 2);
    EXPECT_DOUBLE_EQ(costs.seconds(rows), 1) << rows;
  }
  observe_often(costs, int64_t{1} << 40, 7.0, 2);
  EXPECT_DOUBLE_EQ(costs.seconds(int64_t{1} << 40), 7);
}

}  // namespace
}  // namespace slime::engine
