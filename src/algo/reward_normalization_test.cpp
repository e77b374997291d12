#include "algo/reward_normalization.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slime::algo {
namespace {

using How = RewardNormalization;

const std::vector<double> kRewards{1, 1, 1, 0};
const std::vector<int64_t> kOneGroup{5, 5, 5, 5};
const std::vector<int64_t> kSplit{0, 0, 0, 1};  // the first execution became three samples
const std::vector<int64_t> kAlone{0, 1, 2, 3};

TEST(RewardNormalization, AnExecutionOfSeveralSamplesCountsOnce) {
  EXPECT_EQ(normalize_rewards(kRewards, kOneGroup, kSplit, How::kMean),
            (std::vector<double>{0.5, 0.5, 0.5, -0.5}));
  EXPECT_EQ(normalize_rewards(kRewards, kOneGroup, kAlone, How::kMean),
            (std::vector<double>{0.25, 0.25, 0.25, -0.75}));
  const double std_of_two = std::sqrt(0.5);  // of {1, 0}
  const std::vector<double> scaled =
      normalize_rewards(kRewards, kOneGroup, kSplit, How::kMeanAndStd);
  EXPECT_DOUBLE_EQ(scaled[0], 0.5 / (std_of_two + 1e-6));
  EXPECT_DOUBLE_EQ(scaled[3], -0.5 / (std_of_two + 1e-6));
  EXPECT_EQ(normalize_rewards(kRewards, kOneGroup, kSplit, How::kLeaveOneOut),
            (std::vector<double>{1, 1, 1, -1}));
}

TEST(RewardNormalization, SamplesOfAnExecutionMayHaveRewardsOfTheirOwn) {
  // Executions {1, 0} and {0.25}: means 0.5 and 0.25, so the baseline is 0.375.
  const std::vector<double> rewards{1, 0, 0.25};
  const std::vector<int64_t> group{0, 0, 0}, executions{7, 7, 8};
  EXPECT_EQ(normalize_rewards(rewards, group, executions, How::kMean),
            (std::vector<double>{0.625, -0.375, -0.125}));
  EXPECT_EQ(normalize_rewards(rewards, group, executions, How::kLeaveOneOut),
            (std::vector<double>{0.75, -0.25, -0.25}))
      << "minus the mean of the other executions: 0.25 and 0.5";
}

TEST(RewardNormalization, AGroupOfOneExecutionHasNothingToBeComparedWith) {
  const std::vector<int64_t> executions{3, 3, 3, 3};
  for (const How how : {How::kMean, How::kMeanAndStd, How::kLeaveOneOut}) {
    EXPECT_EQ(normalize_rewards(std::vector<double>{1, 1, 1, 1}, kOneGroup, executions, how),
              std::vector<double>(4, 0.0));
  }
}

TEST(RewardNormalization, OfInterleavedGroupsOfAnySizeIsByTheirIds) {
  const std::vector<double> rewards{1, 7, 0, 1, 0};
  const std::vector<int64_t> groups{9, 2, 9, 9, 3}, executions{4, 8, 5, 4, 6};
  EXPECT_EQ(normalize_rewards(rewards, groups, executions, How::kMean),
            (std::vector<double>{0.5, 0, -0.5, 0.5, 0}));
  const double scaled = 0.5 / (std::sqrt(0.5) + 1e-6);
  EXPECT_EQ(normalize_rewards(rewards, groups, executions, How::kMeanAndStd),
            (std::vector<double>{scaled, 0, -scaled, scaled, 0}));
  // As many as two prompts of two would have, in another order.
  EXPECT_EQ(normalize_rewards(std::vector<double>{1, 0, 0, 0}, std::vector<int64_t>{0, 1, 0, 1},
                              std::vector<int64_t>{0, 2, 1, 3}, How::kMean),
            (std::vector<double>{0.5, 0, -0.5, 0}));
}

TEST(RewardNormalization, EqualExecutionIdsOfTwoGroupsAreTwoExecutions) {
  const std::vector<double> rewards{1, 0, 2, 4};
  const std::vector<int64_t> groups{0, 0, 1, 1}, executions{0, 1, 0, 1};
  EXPECT_EQ(normalize_rewards(rewards, groups, executions, How::kMean),
            (std::vector<double>{0.5, -0.5, -1, 1}));
}

}  // namespace
}  // namespace slime::algo
