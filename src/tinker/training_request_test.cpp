#include "tinker/training_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace slime::tinker {
namespace {

using ::testing::HasSubstr;

constexpr ModelLimits kLimits{.vocab_size = 100, .max_positions = 8};

template <typename T>
InputColumn column(std::vector<T> values) {
  return {.shape = {static_cast<int64_t>(values.size())}, .values = std::move(values)};
}

/// Tokens 5 6 7 with the targets 6 7 8.
Datum datum() {
  Datum made{.tokens = {5, 6, 7}, .num_scored = std::nullopt, .inputs = {}};
  made.inputs["target_tokens"] = column<int64_t>({6, 7, 8});
  return made;
}

Datum weighted(std::vector<float> weights) {
  Datum made = datum();
  made.inputs["weights"] = column(std::move(weights));
  return made;
}

train::GivenBatch batch_of(std::vector<Datum> data, const std::string& loss = "cross_entropy") {
  const TrainingBody body{.loss_fn = loss, .loss_fn_config = {}, .data = std::move(data)};
  const json::object none;
  return read_batch(body, make_token_loss(loss, FieldReader(none, ""), train::TrainConfig{}),
                    kLimits);
}

std::string problem(std::vector<Datum> data, const std::string& loss = "cross_entropy") {
  try {
    (void)batch_of(std::move(data), loss);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainingRequest, TargetsFollowTheTokensAndZeroWeightsTrainNothing) {
  const train::GivenBatch batch = batch_of({weighted({0, -1, 0.5F})});
  ASSERT_EQ(batch.batch.samples.size(), 1U);
  const train::TrainSample& sample = batch.batch.samples[0];
  EXPECT_EQ(sample.tokens, (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(sample.prompt_length, 1);
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_EQ(batch.columns[0].weights, (std::vector<float>{0, -1, 0.5F}));
}

TEST(TrainingRequest, TargetsThatAreNotTheNextTokensAreTheSamples) {
  Datum other = weighted({0, 0, 1});
  other.inputs["target_tokens"] = column<int64_t>({0, 0, 8});
  const train::GivenBatch batch = batch_of({other, weighted({0, 0, 1})});
  EXPECT_EQ(batch.batch.samples[0].tokens, (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(batch.batch.samples[0].targets, (std::vector<TokenId>{0, 0, 8}));
  EXPECT_TRUE(batch.batch.samples[1].targets.empty());
}

TEST(TrainingRequest, ColumnsOfTheLastTargetsLeaveAPrompt) {
  Datum made = datum();
  made.num_scored = 2;
  made.inputs["target_tokens"] = column<int64_t>({7, 8});
  made.inputs["weights"] = column<float>({1, 1});
  const train::GivenBatch batch = batch_of({made});
  EXPECT_EQ(batch.batch.samples[0].prompt_length, 2);
  EXPECT_EQ(batch.batch.samples[0].loss_mask.size(), 2U);
}

TEST(TrainingRequest, WhatIsWrongIsNamed) {
  EXPECT_THAT(
      problem({weighted({1, 1})}),
      HasSubstr("data[0].loss_fn_inputs.weights: has 2 numbers, and there are 3 positions"));
  EXPECT_THAT(problem({weighted({1, 1, 1}), datum()}),
              HasSubstr("data[1].loss_fn_inputs.weights: is missing, and cross_entropy needs it"));
  EXPECT_THAT(problem({weighted({1, std::numeric_limits<float>::quiet_NaN(), 1})}),
              HasSubstr("weights[1]: is not finite"));
  EXPECT_THAT(problem({datum()}, "ppo"), HasSubstr("advantages: is missing"));
  Datum other = weighted({1, 1, 1});
  other.inputs["target_tokens"] = column<int64_t>({6, 7, 100});
  EXPECT_THAT(problem({other}), HasSubstr("target_tokens[2]: 100 is no token"));
  other.inputs["target_tokens"] = column<float>({6, 7, 8});
  EXPECT_THAT(problem({other}), HasSubstr("target_tokens: should be whole numbers"));
  other = weighted({1, 1, 1});
  other.inputs["target_tokens"].shape = {3, 1};
  EXPECT_THAT(problem({other}), HasSubstr("target_tokens: has two dimensions"));
  Datum longer{.tokens = std::vector<TokenId>(8, 1), .num_scored = std::nullopt, .inputs = {}};
  longer.inputs["target_tokens"] = column(std::vector<int64_t>(8, 1));
  longer.inputs["weights"] = column(std::vector<float>(8, 1));
  EXPECT_THAT(problem({longer}), HasSubstr("9 tokens, and the model has 8 positions"));
}

}  // namespace
}  // namespace slime::tinker
