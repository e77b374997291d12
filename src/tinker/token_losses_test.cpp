#include "tinker/token_losses.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "algo/packed.h"
#include "core/error.h"

namespace slime::tinker {
namespace {

/// Two responses of two tokens and one; ratios 2, 1 and 1/4.
algo::PolicyColumns columns() {
  algo::PolicyColumns in;
  const std::vector<double> old{-1, -1, -1};
  in.old_T = at::tensor(old, at::kDouble);
  const std::vector<double> ratios{2, 1, 0.25};
  in.logprob_T = (at::tensor(ratios, at::kDouble).log() + in.old_T).requires_grad_();
  in.advantage_T = at::tensor(std::vector<double>{1, 3, -2}, at::kDouble);
  in.weight_T = at::tensor(std::vector<double>{1, 0, -0.5}, at::kDouble);
  in.trained_T = at::ones({3}, at::kBool);
  in.starts = algo::make_starts(std::vector<int64_t>{2, 1});
  return in;
}

struct Result {
  double sum;
  std::vector<double> gradient;
};

Result result_of(const std::string& name, const json::object& config = {}) {
  const algo::PolicyColumns in = columns();
  const train::TrainConfig trainer;
  const TokenLoss loss = make_token_loss(name, FieldReader(config, "loss_fn_config."), trainer);
  const algo::Loss made = loss.loss.of(in);
  made.sum.backward();
  EXPECT_DOUBLE_EQ(made.metrics.at("loss"), made.sum.item<double>());
  const Tensor gradient = in.logprob_T.grad();
  return {made.sum.item<double>(),
          {gradient.const_data_ptr<double>(), gradient.const_data_ptr<double>() + 3}};
}

void expect_near(const Result& result, double sum, const std::vector<double>& gradient) {
  EXPECT_NEAR(result.sum, sum, 1e-12);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    EXPECT_NEAR(result.gradient[i], gradient[i], 1e-12) << i;
}

const double kFirst = std::log(2.0) - 1, kLast = std::log(0.25) - 1;  // log-probs

TEST(TokenLoss, CrossEntropyIsWeighedAlsoBelowZero) {
  expect_near(result_of("cross_entropy"), -kFirst + 0.5 * kLast, {-1, 0, 0.5});
}

TEST(TokenLoss, ImportanceSamplingHasItsGradientThroughTheRatio) {
  expect_near(result_of("importance_sampling"), -2 - 3 + 0.5, {-2, -3, 0.5});
}

TEST(TokenLoss, PpoTakesTheLesserGain) {
  // min(2, 1.2) 1; min(1, 1) 3; min(-0.5, 0.8 * -2) = -1.6, clipped
  expect_near(result_of("ppo"), -1.2 - 3 + 1.6, {0, -3, 0});
  expect_near(result_of("ppo", {{"clip_low_threshold", 0.1}, {"clip_high_threshold", 3.0}}),
              -2 - 3 + 0.5, {-2, -3, 0.5});
}

TEST(TokenLoss, CispoClipsAConstantWeight) {
  expect_near(result_of("cispo", {{"clip_high_threshold", 1.5}}), -1.5 * kFirst + 3 + 0.5 * kLast,
              {-1.5, -3, 0.5});
}

TEST(TokenLoss, DroPullsTowardsTheSampler) {
  const double a = std::log(2.0), c = std::log(0.25);
  expect_near(result_of("dro", {{"beta", 0.5}}),
              -(kFirst - 0.25 * a * a) - (-3) - (-2 * kLast - 0.25 * c * c),
              {-(1 - 0.5 * a), -3, -(-2 - 0.5 * c)});
}

TEST(TokenLoss, DroLeavesOutTokensThatDoNotTrain) {
  algo::PolicyColumns in = columns();
  in.trained_T = at::tensor(std::vector<int64_t>{0, 1, 0}, at::kLong).to(at::kBool);
  in.advantage_T = in.advantage_T * in.trained_T;
  const json::object config{{"beta", 0.5}};
  make_token_loss("dro", FieldReader(config, "loss_fn_config."), train::TrainConfig())
      .loss.of(in)
      .sum.backward();
  EXPECT_EQ(in.logprob_T.grad()[0].item<double>(), 0);
  EXPECT_EQ(in.logprob_T.grad()[2].item<double>(), 0);
}

TEST(TokenLoss, GspoHasOneRatioForAResponse) {
  const double ratio = std::sqrt(2.0);
  expect_near(result_of("gspo", {{"clip_low_threshold", 0.0}, {"clip_high_threshold", 4.0}}),
              -ratio * 4 + 0.5, {-ratio, -ratio * 3, 0.5});
}

TEST(TokenLoss, WhatThereIsNotIsAnError) {
  EXPECT_THROW(result_of("custom"), ConfigError);
  EXPECT_THROW(result_of("ppo", {{"clip", 0.2}}), ConfigError);
  EXPECT_THROW(result_of("ppo", {{"clip_low_threshold", 2.0}}), ConfigError);
}

}  // namespace
}  // namespace slime::tinker
