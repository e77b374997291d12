#include "core/executions.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

Sample scored(std::optional<int64_t> rollout_id, json::value reward) {
  Sample sample;
  sample.rollout_id = rollout_id;
  sample.reward = std::move(reward);
  return sample;
}

TEST(Executions, AreSamplesWithOneRolloutIdAndEachSampleWithoutOne) {
  Group group;
  for (const auto& [id, reward] : std::vector<std::pair<std::optional<int64_t>, double>>{
           {7, 1.0}, {std::nullopt, 0.0}, {7, 0.5}, {std::nullopt, 0.25}})
    group.samples.push_back(scored(id, reward));
  const auto executions = executions_of(group);
  ASSERT_EQ(executions.size(), 3U);
  EXPECT_EQ(executions[0].size(), 2U);
  EXPECT_EQ(execution_reward(executions[0], ""), 0.75);
  EXPECT_EQ(execution_reward(executions[1], ""), 0.0);
  EXPECT_EQ(execution_reward(executions[2], ""), 0.25);
}

TEST(Executions, WithoutARewardHaveNone) {
  Group group;
  group.samples.push_back(scored(3, nullptr));
  group.samples.push_back(scored(3, nullptr));
  EXPECT_EQ(execution_reward(executions_of(group).front(), ""), std::nullopt);
  group.samples.back().reward = 1.0;
  EXPECT_EQ(execution_reward(executions_of(group).front(), ""), 1.0) << "of those that have one";
}

}  // namespace
}  // namespace slime
