#include "train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "train/network_for_tests.h"

namespace slime::train {
namespace {

/// Two prompts, two responses each; the first of each is right.
std::vector<Group> two_groups() {
  std::vector<Group> groups;
  for (int64_t g = 0; g < 2; ++g) {
    Group group{g, {}};
    for (int64_t k = 0; k < 2; ++k) {
      Sample sample;
      sample.group = g;
      sample.ordinal = 2 * g + k;
      sample.prompt_length = 20;
      for (int64_t t = 0; t < 20; ++t)
        sample.tokens.push_back(static_cast<TokenId>(10 + 7 * g + t));
      for (int64_t t = 0; t < 3 + k; ++t)
        sample.tokens.push_back(static_cast<TokenId>(50 + 9 * k + t));
      sample.reward = k == 0 ? 1.0 : 0.0;
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

TrainConfig grpo(int64_t global_batch_size) {
  TrainConfig config;
  config.batching.global_batch_size = global_batch_size;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = 64;
  config.lr = {.lr = 1e-3, .style = DecayStyle::kConstant};
  return config;
}

/// Flags that contradict are refused before (Validate.NamesEveryContradictionAtOnce).
TEST(Trainer, AConfigurationThatContradictsItselfIsABug) {
  const auto is_bug = [](auto&& spoil) {
    TrainConfig config = grpo(4);
    EXPECT_NO_THROW(check_config(config));
    spoil(config);
    EXPECT_THROW(check_config(config), BugError);
  };
  is_bug([](TrainConfig& config) { config.temperature = 0; });
  is_bug([](TrainConfig& config) { config.batching.max_tokens_per_gpu = 0; });
  is_bug([](TrainConfig& config) { config.advantage = algo::ReinforceBaseline{}; });
  is_bug([](TrainConfig& config) { config.policy.objective = algo::TokenClip{0.2, 0.2, 0.5}; });
}

TEST(Trainer, AKlLossNeedsAReference) {
  TrainConfig config = grpo(4);
  config.policy.kl_loss = algo::KlLoss{algo::KlType::kK3, 0.1, false};
  const auto network = load();
  EXPECT_THROW(Trainer(*network, config, kClock), BugError);
}

TEST(Trainer, OneStepPerRolloutNeedsNoOldPassAndHasRatioOne) {
  const auto network = load();
  Trainer trainer(*network, grpo(4), kClock);
  const TrainReport report = trainer.train(make_train_batch(two_groups(), {}));
  ASSERT_EQ(report.steps.size(), 1u);
  EXPECT_EQ(report.steps[0].metrics.at("train/ppo_kl"), 0);
  EXPECT_NEAR(report.steps[0].metrics.at("train/loss"), 0, 1e-6);
  EXPECT_GT(report.steps[0].metrics.at("train/grad_norm"), 0.01);
  EXPECT_FALSE(report.rollout.contains("rollout/log_probs"));
  EXPECT_DOUBLE_EQ(report.rollout.at("rollout/raw_reward"), 0.5);
  EXPECT_EQ(report.num_tokens, 2 * (23 + 24));
  EXPECT_EQ(report.num_computed_tokens, 2 * (23 + 24) - 2 * 20);
  ASSERT_EQ(report.advantages.size(), 4u);  // rewards 1 and 0 of each group, less their mean
  EXPECT_NEAR(report.advantages[0], -report.advantages[1], 1e-6);
  EXPECT_GT(std::abs(report.advantages[0]), 0.4);
}

TEST(Trainer, GroupsThatAllGotTheSameRewardCountInTheMeanButNeedNoBackwardPass) {
  std::vector<Group> groups = two_groups();
  for (Sample& sample : groups[1].samples) sample.reward = 1.0;
  const TrainBatch batch = make_train_batch(groups, {});
  std::vector<Tensor> gradients;
  std::vector<Metrics> metrics;
  for (const double kl_coef :
       {0.0, 1e-30}) {  // any coefficient above 0 brings the backward pass back
    const auto exact = model::Precision::of("float64");
    const auto network = model::load_network(kModel, exact);
    TrainConfig config = grpo(4);
    config.policy.kl_loss = algo::KlLoss{algo::KlType::kK3, kl_coef, false};
    Trainer trainer(*network, config, kClock, {.reference = model::load_network(kModel, exact)});
    metrics.push_back(trainer.train(batch).steps[0].metrics);
    gradients.push_back(network->weights().grad().clone());
  }
  const double size = gradients[0].abs().max().item<double>();
  EXPECT_GT(size, 0.01);
  EXPECT_LT((gradients[0] - gradients[1]).abs().max().item<double>(), 1e-12 * size);
  for (const auto& [name, value] : metrics[0])
    EXPECT_NEAR(metrics[1].at(name), value, 1e-10) << name;
}

TEST(Trainer, SeveralStepsPerRolloutShareTheOldPolicyOfTheFirst) {
  const auto network = load();
  Trainer trainer(*network, grpo(2), kClock);
  const TrainReport report = trainer.train(make_train_batch(two_groups(), {}));
  ASSERT_EQ(report.steps.size(), 2u);
  EXPECT_NEAR(report.steps[0].metrics.at("train/ppo_kl"), 0, 1e-6);
  EXPECT_NE(report.steps[1].metrics.at("train/ppo_kl"), 0);
  EXPECT_TRUE(report.rollout.contains("rollout/log_probs"));
  EXPECT_EQ(trainer.state(), (TrainerState{2, 2, 4, 1, {}}));
}

TEST(Trainer, RaisesTheLogProbsOfWhatWasRewarded) {
  const auto network = load();
  Trainer trainer(*network, grpo(4), kClock);
  const TrainBatch batch = make_train_batch(two_groups(), {});
  const auto sum = [&](std::size_t i) {
    const auto scored = trainer.score(batch.samples);
    return std::accumulate(scored[i].log_probs.begin(), scored[i].log_probs.end(), 0.0);
  };
  const double right = sum(0), wrong = sum(1);
  for (int step = 0; step < 5; ++step) trainer.train(batch);
  EXPECT_GT(sum(0), right);
  EXPECT_LT(sum(1), wrong);
}

TEST(Trainer, KeepsTheWeightsWhenGradientsAreNotFiniteAndStopsInTheEnd) {
  const auto network = load();
  TrainConfig config = grpo(4);
  config.max_skipped_steps = 1;
  Trainer trainer(*network, config, kClock);
  const TrainBatch batch = make_train_batch(two_groups(), {});
  network->weights().flat()[5] = std::numeric_limits<float>::infinity();
  const Tensor before = network->weights().flat().clone();
  const TrainReport report = trainer.train(batch);
  EXPECT_NE(report.steps[0].skipped.find("gradients that are not finite"), std::string::npos);
  EXPECT_NE(report.steps[0].skipped.find("samples 0, 1"), std::string::npos)
      << report.steps[0].skipped;
  EXPECT_TRUE(at::equal(network->weights().flat(), before));
  EXPECT_EQ(trainer.state().samples_done, 0);
  EXPECT_EQ(report.stopped, "");
  EXPECT_NE(trainer.train(batch).stopped.find("after 2 steps"), std::string::npos);
}

TEST(Trainer, NamesTheFirstTokenWithANumberThatIsNotFinite) {
  const auto network = load();
  Trainer trainer(*network, grpo(4), kClock);
  std::vector<Group> groups = two_groups();
  TrainBatch batch = make_train_batch(groups, {});
  batch.samples[1].reward = std::numeric_limits<double>::quiet_NaN();
  const std::string message = trainer.train(batch).steps[0].skipped;
  const int64_t id = batch.samples[1].tokens[batch.samples[1].prompt_length];
  EXPECT_NE(
      message.find(fmt::format("sample 1, response token 0 (id {}): the advantage is nan", id)),
      std::string::npos)
      << message;
}

TEST(Trainer, TheReferenceFollowsAtItsInterval) {
  const auto network = load();
  TrainConfig config = grpo(4);
  config.policy.kl_loss = algo::KlLoss{algo::KlType::kK3, 0.1, false};
  config.ref_update_interval = 2;
  Trainer trainer(*network, config, kClock, {.reference = load()});
  const TrainBatch batch = make_train_batch(two_groups(), {});
  EXPECT_NEAR(trainer.train(batch).steps[0].metrics.at("train/kl_loss"), 0, 1e-6);
  EXPECT_GT(trainer.train(batch).steps[0].metrics.at("train/kl_loss"), 1e-6);
  EXPECT_TRUE(at::equal(trainer.reference()->weights().flat(), network->weights().flat()));
}

TEST(Trainer, ABatchSmallerThanAStepIsRefused) {
  const auto network = load();
  Trainer trainer(*network, grpo(5), kClock);
  EXPECT_THROW(trainer.train(make_train_batch(two_groups(), {})), ConfigError);
}

TEST(Trainer, ScoresInTheOrderItWasAsked) {
  const auto network = load();
  Trainer trainer(*network, grpo(4), kClock);
  const TrainBatch batch = make_train_batch(two_groups(), {});
  const auto together = trainer.score(batch.samples);
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const auto alone = trainer.score(std::span(&batch.samples[i], 1));
    ASSERT_EQ(alone[0].log_probs.size(), together[i].log_probs.size());
    for (std::size_t t = 0; t < alone[0].log_probs.size(); ++t) {
      EXPECT_NEAR(alone[0].log_probs[t], together[i].log_probs[t], 1e-5);
      EXPECT_GT(together[i].entropies[t], 0);
    }
  }
}

}  // namespace
}  // namespace slime::train
