#include "train/train_batch.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/version_runs.h"

namespace slime::train {
namespace {

Sample sample(int64_t ordinal, double reward, int64_t response_length = 2) {
  Sample s;
  s.ordinal = ordinal;
  s.prompt_length = 1;
  s.tokens.assign(1 + response_length, 7);
  s.reward = reward;
  s.status = Status::kCompleted;
  return s;
}

TEST(TrainBatch, NormalisesByGroupEvenWhenGroupsAreRagged) {
  Group three{0, {sample(0, 1), sample(1, 1), sample(2, 4)}}, one{1, {sample(3, 5)}};
  one.samples[0].group = 1;
  const std::vector<Group> groups{three, one};
  const TrainBatch batch = make_train_batch(groups, {.rewards = algo::RewardNormalization::kMean});
  EXPECT_DOUBLE_EQ(batch.samples[0].reward, -1);
  EXPECT_DOUBLE_EQ(batch.samples[2].reward, 2);
  EXPECT_DOUBLE_EQ(batch.samples[3].reward, 0);
  EXPECT_DOUBLE_EQ(batch.samples[3].raw_reward, 5);
}

TEST(TrainBatch, AFailedSampleWithoutRewardTrainsNothingAndDoesNotMoveItsGroup) {
  Group group{0, {sample(0, 1), sample(1, 0), sample(2, 0)}};
  group.samples[2].reward = nullptr;
  group.samples[2].status = Status::kFailed;
  const TrainBatch batch =
      make_train_batch(std::span(&group, 1), {.rewards = algo::RewardNormalization::kMean});
  EXPECT_DOUBLE_EQ(batch.samples[0].reward, 0.5);
  EXPECT_DOUBLE_EQ(batch.samples[1].reward, -0.5);
  EXPECT_EQ(batch.samples[2].rollout_mask_total, 0);
}

TEST(TrainBatch, NamesEverySampleThatCannotBeTrained) {
  Group group{0, {sample(0, 1), sample(1, 1), sample(2, 1)}};
  group.samples[0].loss_mask = {1};
  group.samples[1].reward = nullptr;
  group.samples[2].log_probs = {0.5f};
  try {
    make_train_batch(std::span(&group, 1), {});
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("sample 0: loss mask of 1 entries for 2"), std::string::npos) << text;
    EXPECT_NE(text.find("sample 2: 1 rollout_log_probs for 2"), std::string::npos) << text;
    EXPECT_NE(text.find('1'), std::string::npos);
  }
}

TEST(TrainBatch, VersionsOfTokensArriveAndHaveToAddUp) {
  Group group{0, {sample(0, 1, 4), sample(1, 0, 4), sample(2, 0, 4)}};
  group.samples[0].versions = {{5, 1}, {kNoVersion, 2}, {6, 1}};
  const TrainBatch batch = make_train_batch(std::span(&group, 1), {});
  EXPECT_EQ(batch.samples[0].versions, group.samples[0].versions);
  EXPECT_TRUE(batch.samples[1].versions.empty());
  group.samples[2].versions = {{5, 3}};
  try {
    make_train_batch(std::span(&group, 1), {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "sample 2: weight versions of 3 tokens for 4 response tokens");
  }
}

TEST(TrainBatch, ASupervisedSampleNeedsATrainedToken) {
  std::vector<Sample> samples{sample(0, 0), sample(1, 0)};
  samples[1].loss_mask = {0, 0};
  EXPECT_THROW(make_supervised_batch(samples), ConfigError);
  samples.pop_back();
  EXPECT_EQ(make_supervised_batch(samples).samples[0].rollout_mask_total, 2);
}

}  // namespace
}  // namespace slime::train
