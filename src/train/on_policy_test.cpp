#include "train/on_policy.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::train {
namespace {

using testing::HasSubstr;

/// A response of four tokens, the last two by newer weights, the first of those not trained.
TrainBatch batch_of_two_versions() {
  TrainSample sample;
  sample.ordinal = 17;
  sample.tokens = {1, 5, 6, 7, 8};
  sample.prompt_length = 1;
  sample.loss_mask = {1, 1, 0, 1};
  sample.rollout_log_probs = {-1, -2, -3, -4};
  sample.versions = {{4, 2}, {5, 2}};
  TrainBatch batch;
  batch.samples.push_back(sample);
  return batch;
}

std::string on_policy_problem(const TrainBatch& batch, const std::vector<float>& of_trainer) {
  MicroBatch micro_batch;
  micro_batch.samples = {0};
  TokenColumn engine(1);
  const std::vector<float>& own = batch.samples[0].rollout_log_probs;
  if (!own.empty()) engine.put(0, at::tensor(at::ArrayRef<float>(own)));
  try {
    check_log_probs(batch, micro_batch, engine, at::tensor(at::ArrayRef<float>(of_trainer)));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(OnPolicy, TrainedTokensOfTheNewestWeightsAreCompared) {
  const TrainBatch batch = batch_of_two_versions();
  EXPECT_EQ(on_policy_problem(batch, {-1, -2, -3, -4}), "");
  EXPECT_EQ(on_policy_problem(batch, {-1.5, -2, -9, -4}), "")
      << "older weights, and a tool's token";
  TrainBatch later = batch;
  later.version = 6;
  EXPECT_EQ(on_policy_problem(later, {-1.5, -2.5, -9, -8}), "") << "none is of these weights";
  EXPECT_THAT(
      on_policy_problem(batch, {-1, -2, -3, -4.5}),
      HasSubstr("1 of 1 log-probs differ, by 0.5 at most; token 3 of the response of sample "
                "17 has -4.5 by the trainer and -4 by the engine"));
}

TEST(OnPolicy, ASampleWithoutLogProbsIsAnError) {
  TrainBatch batch = batch_of_two_versions();
  batch.samples[0].rollout_log_probs.clear();
  EXPECT_THAT(on_policy_problem(batch, {-1, -2, -3, -4}), HasSubstr("sample 17 has no log-probs"));
}

TEST(OnPolicy, ABatchIsIfAllTrainedTokensAreOfOneVersion) {
  TrainBatch batch = batch_of_two_versions();
  EXPECT_FALSE(is_on_policy(batch));
  batch.samples[0].loss_mask = {0, 0, 1, 1};
  EXPECT_TRUE(is_on_policy(batch));
  batch.version = 6;
  EXPECT_FALSE(is_on_policy(batch));
  batch.version.reset();
  batch.samples[0].rollout_log_probs.clear();
  EXPECT_FALSE(is_on_policy(batch));
}

}  // namespace
}  // namespace slime::train
