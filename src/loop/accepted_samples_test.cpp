#include "loop/accepted_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::loop {
namespace {

using testing::ElementsAre;

Group group_of(const std::vector<double>& rewards) {
  Group group;
  for (const double reward : rewards) group.samples.emplace_back().reward = reward;
  return group;
}

std::vector<bool> accepted(const Group& group) {
  std::vector<bool> is_accepted;
  for (const Sample& sample : group.samples) is_accepted.push_back(!sample.remove_sample);
  return is_accepted;
}

TEST(AcceptedSamples, OfEqualRewardsTheFirstIsKept) {
  std::vector<Group> groups{group_of({0, 1, 1, 0})};
  reject_others(groups, {.min_reward = {}, .best = 1, .reward_key = ""});
  EXPECT_THAT(accepted(groups[0]), ElementsAre(false, true, false, false));
}

TEST(AcceptedSamples, TheBestIsRejectedBelowTheLeastReward) {
  std::vector<Group> groups{group_of({0.2, 0.4}), group_of({0.5, 0.9})};
  report::Metrics metrics = reject_others(groups, {.min_reward = 0.5, .best = 1, .reward_key = ""});
  EXPECT_THAT(accepted(groups[0]), ElementsAre(false, false));
  EXPECT_THAT(accepted(groups[1]), ElementsAre(false, true));
  EXPECT_EQ(metrics["rollout/rejection/accepted_samples"], 1);
  EXPECT_EQ(metrics["rollout/rejection/accepted_ratio"], 0.25);
  EXPECT_EQ(metrics["rollout/rejection/groups_without_accepted"], 0.5);
}

TEST(AcceptedSamples, WithoutALimitAllWithARewardStay) {
  std::vector<Group> groups{group_of({0, 1})};
  groups[0].samples.emplace_back().status = Status::kFailed;
  reject_others(groups, {});
  EXPECT_THAT(accepted(groups[0]), ElementsAre(true, true, false));
}

TEST(AcceptedSamples, WhatAFilterRemovedIsNotChosenAndTakesNobodysPlace) {
  std::vector<Group> groups{group_of({1, 0.5, 0.4})};
  groups[0].samples[0].remove_sample = true;
  reject_others(groups, {.min_reward = {}, .best = 1, .reward_key = ""});
  EXPECT_THAT(accepted(groups[0]), ElementsAre(false, true, false));
}

TEST(AcceptedSamples, ChoosingTwiceIsChoosingOnce) {
  std::vector<Group> groups{group_of({1, 0, 1, 1})};
  const Acceptance two{.min_reward = 0.5, .best = 2, .reward_key = ""};
  reject_others(groups, two);
  reject_others(groups, two);
  EXPECT_THAT(accepted(groups[0]), ElementsAre(true, false, true, false));
}

TEST(AcceptedSamples, SamplesOfOneExecutionStayTogether) {
  std::vector<Group> groups{group_of({0, 1, 0.5})};
  groups[0].samples[0].rollout_id = groups[0].samples[1].rollout_id = 7;
  reject_others(groups, {.min_reward = {}, .best = 1, .reward_key = ""});
  EXPECT_THAT(accepted(groups[0]), ElementsAre(true, true, false));
}

TEST(AcceptedSamples, ARecordIsReadByItsKey) {
  std::vector<Group> groups(1);
  groups[0].samples.emplace_back().reward = {{"score", 0.0}, {"format", 1.0}};
  groups[0].samples.emplace_back().reward = {{"score", 1.0}, {"format", 0.0}};
  reject_others(groups, {.min_reward = 0.5, .best = {}, .reward_key = "score"});
  EXPECT_THAT(accepted(groups[0]), ElementsAre(false, true));
  EXPECT_THROW(reject_others(groups, {.min_reward = 0.5, .best = {}, .reward_key = "none"}),
               ConfigError);
}

}  // namespace
}  // namespace slime::loop
