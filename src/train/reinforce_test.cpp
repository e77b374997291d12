// The trainer's objectives without a ratio: REINFORCE, alone and with scores centered.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "train/network_for_tests.h"
#include "train/pairs_for_tests.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

/// Each token could only have been drawn as it was.
void give_supports_of_one(std::vector<Group>& groups) {
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      sample.top_p_offsets = {0};
      for (int64_t t = 0; t < sample.response_length(); ++t) {
        sample.top_p_ids.push_back(
            sample.tokens[static_cast<std::size_t>(sample.prompt_length + t)]);
        sample.top_p_log_probs.push_back(0);
        sample.log_probs.push_back(0);
        sample.top_p_offsets.push_back(t + 1);
      }
    }
  }
}

TrainConfig centering(int64_t global_batch_size, bool lists_support) {
  TrainConfig config = config_for(global_batch_size);
  config.policy.objective = algo::Reinforce{};
  config.policy.centering = algo::ScoreCentering{lists_support, 3};
  config.replays_top_p = lists_support;
  return config;
}

TEST(ScoreCenteringOfATrainer, OfSupportsOfOneTokenTrainsNothing) {
  const auto network = load();
  Trainer trainer(*network, centering(4, true), kClock);
  std::vector<Group> groups = better_and_worse_pairs(2);
  give_supports_of_one(groups);
  const algo::MetricSums sums = trainer.accumulate_gradients(make_train_batch(groups, {}));
  EXPECT_EQ(sums.at("sc_correction"), 0);
  EXPECT_EQ(sums.at("loss"), 0);
  EXPECT_EQ(network->weights().grad().abs().max().item<double>(), 0);
}

TEST(ScoreCenteringOfATrainer, RefusesSamplesWithoutARecordOfTheirSampler) {
  const auto network = load();
  const auto problem_of = [&](const std::vector<Group>& groups, bool lists_support) {
    Trainer trainer(*network, centering(4, lists_support), kClock);
    try {
      trainer.train(make_train_batch(groups, {}));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(problem_of(better_and_worse_pairs(2), false)
                .find("use-score-centering: sample 0 has 0 of the sampler's "
                      "likeliest ids and 0 log-probs; 3 tokens have 3 each"),
            std::string::npos)
      << problem_of(better_and_worse_pairs(2), false);
  std::vector<Group> groups = better_and_worse_pairs(2);
  give_supports_of_one(groups);
  groups[0].samples[1].top_p_log_probs[2] = -0.5;
  EXPECT_NE(problem_of(groups, true)
                .find("sample 1 has a wrong record of what its response token 2 was drawn from: it "
                      "adds up to 0.6065"),
            std::string::npos)
      << problem_of(groups, true);
}

TEST(Reinforce, HasNoRatioAndWeighsThePolicyThatIsTrained) {
  const auto network = load();
  TrainConfig config = config_for(2);  // two steps, of which the second is off-policy
  config.policy.objective = algo::Reinforce{};
  config.policy.correction = algo::TruncatedImportance{0, 2};
  std::vector<Group> groups = better_and_worse_pairs(2);
  for (Group& group : groups)
    for (Sample& sample : group.samples)
      sample.log_probs.assign(static_cast<std::size_t>(sample.response_length()), -5.0F);
  Trainer trainer(*network, config, kClock);
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  ASSERT_EQ(report.steps.size(), 2U);
  for (const StepReport& step : report.steps) EXPECT_EQ(step.metrics.at("train/pg_clipfrac"), 0);
  EXPECT_EQ(report.steps[0].metrics.at("train/ppo_kl"), 0);
  EXPECT_NE(report.steps[1].metrics.at("train/ppo_kl"), 0);
}

}  // namespace
}  // namespace slime::train
