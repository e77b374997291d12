// What the trainer does beside the plain policy loss: critic, preferences, distillation, lagging
// weights, frozen ones.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "model/adapters.h"
#include "train/checkpoint.h"
#include "train/network_for_tests.h"
#include "train/pairs_for_tests.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

TrainConfig ppo(int64_t global_batch_size) {
  TrainConfig config = config_for(global_batch_size);
  config.advantage = algo::Gae{};
  config.critic = CriticConfig{};
  config.critic->lr = config.lr;
  return config;
}

TEST(Critic, LearnsToExplainTheReturns) {
  const auto network = load();
  Trainer trainer(*network, ppo(8), kClock, {.critic = load()});
  const TrainBatch batch =
      make_train_batch(better_and_worse_pairs(4), {algo::RewardNormalization::kNone, "", {}});
  const double before = trainer.train(batch).rollout.at("rollout/value_explained_variance");
  TrainReport report;
  for (int step = 0; step < 30; ++step) report = trainer.train(batch);
  EXPECT_LT(before, 0.5);
  EXPECT_GT(report.rollout.at("rollout/value_explained_variance"), 0.5);
  EXPECT_LT(report.steps[0].metrics.at("train/critic-value_loss"), 0.2);
  EXPECT_TRUE(report.steps[0].metrics.contains("train/critic-value_clipfrac"));
  EXPECT_TRUE(report.steps[0].metrics.contains("train/pg_loss"));
}

TEST(Critic, TrainsAloneInTheFirstSteps) {
  const auto network = load();
  TrainConfig config = ppo(4);
  config.critic->num_critic_only_steps = 1;
  Trainer trainer(*network, config, kClock, {.critic = load()});
  const TrainBatch batch =
      make_train_batch(better_and_worse_pairs(2), {algo::RewardNormalization::kNone, "", {}});
  const Tensor before = network->weights().flat().clone();
  const TrainReport first = trainer.train(batch);
  EXPECT_TRUE(at::equal(network->weights().flat(), before));
  EXPECT_FALSE(first.steps[0].metrics.contains("train/pg_loss"));
  EXPECT_TRUE(first.steps[0].metrics.contains("train/critic-value_loss"));
  trainer.train(batch);
  EXPECT_FALSE(at::equal(network->weights().flat(), before));
}

TEST(Critic, ComesBackFromACheckpoint) {
  const auto root = std::filesystem::path(testing::TempDir()) / "critic_checkpoint";
  std::filesystem::remove_all(root);
  const TrainBatch batch =
      make_train_batch(better_and_worse_pairs(2), {algo::RewardNormalization::kNone, "", {}});
  const auto network = load();
  Trainer trainer(*network, ppo(4), kClock, {.critic = load()});
  trainer.train(batch);
  save_checkpoint({.root = root, .model_source = kModel}, 0, trainer, {});
  const TrainReport expected = trainer.train(batch);

  const auto checkpoint = find_checkpoint(root, [](const std::string&) {});
  ASSERT_TRUE(checkpoint);
  const auto again = model::load_network(checkpoint->directory, model::Precision::of("float32"));
  Trainer resumed(*again, ppo(4), kClock, {.critic = load()});
  restore_trainer(*checkpoint, resumed, 0, [](const std::string&) {});
  EXPECT_EQ(resumed.state().critic, (CriticState{1, 4}));
  const TrainReport report = resumed.train(batch);
  for (const char* name : {"train/critic-value_loss", "train/critic-grad_norm", "train/loss"})
    EXPECT_DOUBLE_EQ(report.steps[0].metrics.at(name), expected.steps[0].metrics.at(name)) << name;
}

TEST(Critic, ThatHasNoFiniteGradientsIsSaidAndEndsTraining) {
  const auto network = load();
  TrainConfig config = ppo(4);
  config.max_skipped_steps = 1;
  auto critic = load();
  critic->weights().flat().fill_(std::numeric_limits<float>::infinity());
  Trainer trainer(*network, config, kClock, {.critic = std::move(critic)});
  const TrainBatch batch =
      make_train_batch(better_and_worse_pairs(2), {algo::RewardNormalization::kNone, "", {}});
  const TrainReport first = trainer.train(batch);
  EXPECT_NE(first.steps[0].critic_skipped.find("the value loss of samples 0, 1"), std::string::npos)
      << first.steps[0].critic_skipped;
  EXPECT_NE(first.steps[0].critic_skipped.find("gradients that are not finite"), std::string::npos);
  EXPECT_EQ(trainer.state().critic, (CriticState{0, 0}));
  EXPECT_EQ(first.stopped, "");
  EXPECT_NE(trainer.train(batch).stopped.find("after 2 steps"), std::string::npos);
}

/// A run that is started again after each skipped step would never end.
TEST(Critic, StepsWithoutFiniteGradientsAreCountedAcrossACheckpoint) {
  const auto root = std::filesystem::path(testing::TempDir()) / "critic_skipped";
  std::filesystem::remove_all(root);
  TrainConfig config = ppo(4);
  config.max_skipped_steps = 1;
  const TrainBatch batch =
      make_train_batch(better_and_worse_pairs(2), {algo::RewardNormalization::kNone, "", {}});
  const auto network = load();
  auto critic = load();
  critic->weights().flat().fill_(std::numeric_limits<float>::infinity());
  Trainer trainer(*network, config, kClock, {.critic = std::move(critic)});
  trainer.train(batch);
  EXPECT_EQ(trainer.state().critic_skipped_in_a_row, 1);
  save_checkpoint({.root = root, .model_source = kModel}, 0, trainer, {});

  const auto checkpoint = find_checkpoint(root, [](const std::string&) {});
  ASSERT_TRUE(checkpoint);
  const auto again = model::load_network(checkpoint->directory, model::Precision::of("float32"));
  Trainer resumed(*again, config, kClock, {.critic = load()});
  restore_trainer(*checkpoint, resumed, 0, [](const std::string&) {});
  EXPECT_EQ(resumed.state(), trainer.state());
  EXPECT_NE(resumed.train(batch).stopped.find("after 2 steps"), std::string::npos);
  std::filesystem::remove_all(root);
}

TEST(Preferences, WidenTheGapBetweenChosenAndRejected) {
  const auto network = load();
  TrainConfig config = config_for(3);
  config.objective = Objective::kPreference;
  Trainer trainer(*network, config, kClock, {.reference = load()});
  const TrainBatch batch = make_preference_batch(better_and_worse_pairs(3));
  const TrainReport first = trainer.train(batch);
  EXPECT_NEAR(first.steps[0].metrics.at("train/loss"), std::log(2.0), 1e-5);
  EXPECT_EQ(first.steps[0].metrics.at("train/global_batch_size"), 3);
  TrainReport report;
  for (int step = 0; step < 10; ++step) report = trainer.train(batch);
  EXPECT_LT(report.steps[0].metrics.at("train/loss"), 0.6);
  EXPECT_EQ(report.steps[0].metrics.at("train/rewards/accuracies"), 1);
}

TEST(Preferences, DoNotDependOnHowPairsArePacked) {
  std::vector<Tensor> gradients;
  for (const int64_t max_tokens : {8, 32, 1000}) {
    const auto network = load("float64");
    TrainConfig config = config_for(3);
    config.objective = Objective::kPreference;
    config.batching.max_tokens_per_gpu = max_tokens;
    // A reference of other weights, so that margins differ.
    auto reference = load("float64");
    reference->weights().flat().mul_(1.01);
    Trainer trainer(*network, config, kClock, {.reference = std::move(reference)});
    trainer.accumulate_gradients(make_preference_batch(better_and_worse_pairs(3)));
    gradients.push_back(network->weights().grad().clone());
  }
  const double size = gradients[0].abs().max().item<double>();
  ASSERT_GT(size, 1e-3);
  for (const Tensor& gradient : gradients)
    EXPECT_LT((gradient - gradients[0]).abs().max().item<double>(), 1e-12 * size);
}

TEST(Preferences, AGroupOfAnotherSizeIsRefused) {
  std::vector<Group> groups = better_and_worse_pairs(1);
  groups[0].samples.pop_back();
  EXPECT_THROW(make_preference_batch(groups), ConfigError);
}

TEST(Distillation, PullsThePolicyTowardsItsTeacher) {
  const auto network = load();
  auto teacher = load();
  // A teacher that has learnt the first responses already.
  {
    TrainConfig sft = config_for(4, 3e-3);
    sft.objective = Objective::kSupervised;
    Trainer lessons(*teacher, sft, kClock);
    std::vector<Sample> samples;
    for (const Group& group : better_and_worse_pairs(4)) samples.push_back(group.samples[0]);
    for (int step = 0; step < 10; ++step) lessons.train(make_supervised_batch(samples));
  }
  TrainConfig config = config_for(8);
  config.distillation_coef = 1.0;
  config.has_teacher_model = true;
  Trainer trainer(*network, config, kClock, {.teacher = std::move(teacher)});
  std::vector<Group> groups = better_and_worse_pairs(4);
  for (Group& group : groups) {
    for (Sample& sample : group.samples) sample.reward = 0.0;
  }
  const TrainBatch batch = make_train_batch(groups, {});
  const double before = trainer.train(batch).rollout.at("rollout/opd_reverse_kl");
  TrainReport report;
  for (int step = 0; step < 10; ++step) report = trainer.train(batch);
  // Samples are fixed, so the gap of log-probs is what the advantage moves.
  EXPECT_NE(before, 0);
  EXPECT_LT(std::abs(report.rollout.at("rollout/opd_reverse_kl")), std::abs(before));
  EXPECT_TRUE(report.rollout.contains("rollout/teacher_log_probs"));
}

TEST(Distillation, AcceptsLogProbsThatSamplesBring) {
  const auto network = load();
  TrainConfig config = config_for(4);
  config.distillation_coef = 0.5;
  Trainer trainer(*network, config, kClock);
  std::vector<Group> groups = better_and_worse_pairs(2);
  EXPECT_THROW(trainer.train(make_train_batch(groups, {})), ConfigError);
  for (Group& group : groups) {
    for (Sample& sample : group.samples)
      sample.teacher_log_probs.assign(static_cast<std::size_t>(sample.response_length()), -1.0F);
  }
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  EXPECT_NEAR(report.rollout.at("rollout/teacher_log_probs"), -1.0, 1e-6);
}

TEST(Distillation, AResponseWithoutATokenHasAllOfItsTeachersLogProbs) {
  const auto network = load();
  TrainConfig config = config_for(4);
  config.distillation_coef = 0.5;
  Trainer trainer(*network, config, kClock);
  std::vector<Group> groups = better_and_worse_pairs(2);
  Sample& empty = groups[1].samples[1];
  empty.tokens.resize(static_cast<std::size_t>(empty.prompt_length));
  for (Group& group : groups) {
    for (Sample& sample : group.samples)
      sample.teacher_log_probs.assign(static_cast<std::size_t>(sample.response_length()), -1.0F);
  }
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  EXPECT_NEAR(report.rollout.at("rollout/teacher_log_probs"), -0.75, 1e-6)
      << "a mean of executions, of which one has no token";
}

TEST(Distillation, IsWhatAFunctionOfTheUsersReplaces) {
  const auto network = load();
  TrainConfig config = config_for(4);
  config.distillation_coef = 0.5;
  config.users_advantage = [](const UsersTable& table) {
    EXPECT_TRUE(table.teacher_T.defined());
    const Tensor ones_T = at::full({table.trained_T.size(0)}, 3.0, at::kFloat);
    return algo::Advantages{ones_T, ones_T};
  };
  Trainer trainer(*network, config, kClock);
  std::vector<Group> groups = better_and_worse_pairs(2);
  for (Group& group : groups) {
    for (Sample& sample : group.samples)
      sample.teacher_log_probs.assign(static_cast<std::size_t>(sample.response_length()), -1.0F);
  }
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  EXPECT_NEAR(report.rollout.at("rollout/advantages"), 3, 1e-6);
  EXPECT_TRUE(report.rollout.contains("rollout/opd_reverse_kl")) << "it is measured yet";
}

TEST(EngineLogProbs, OfSomeSamplesAreComparedAmongThem) {
  const auto differences = [](bool have_all, algo::Reduction reduction) {
    const auto network = load();
    TrainConfig config = config_for(4);
    config.reduction = reduction;
    Trainer trainer(*network, config, kClock);
    std::vector<Group> groups = better_and_worse_pairs(2);
    // Both groups are alike, and the trainer's log-probs are about -6: 100 from all of the engine's.
    groups[1].samples = groups[0].samples;
    for (Group& group : groups) {
      for (Sample& sample : group.samples) {
        if (have_all || &group == &groups[0])
          sample.log_probs.assign(static_cast<std::size_t>(sample.response_length()), -106.0F);
      }
    }
    const TrainReport report = trainer.train(make_train_batch(groups, {}));
    const auto& metrics = report.steps[0].metrics;
    return std::pair{metrics.at("train/train_rollout_logprob_abs_diff"),
                     metrics.at("train/train_rollout_k3")};
  };
  for (const auto how : {algo::Reduction::kPerRollout, algo::Reduction::kPerToken}) {
    const auto [some, some_k3] = differences(false, how);
    const auto [all, all_k3] = differences(true, how);
    EXPECT_NEAR(some, all, 1e-4);
    EXPECT_NEAR(some_k3, all_k3, 1e-6 * all_k3);
    EXPECT_NEAR(all_k3, std::exp(20) - 21, 1e-5 * all_k3) << "as far apart as is counted";
  }
}

TEST(RolloutMetrics, RewardsAreOfExecutionsAndTheDivergenceIsOfTokens) {
  const auto network = load();
  TrainConfig config = config_for(3);
  config.advantage = algo::ReinforceBaseline{.kl_coef = 0.1};
  config.normalize_advantages = true;
  auto reference = load();
  reference->weights().flat().mul_(1.05);
  Trainer trainer(*network, config, kClock, {.reference = std::move(reference)});
  std::vector<Group> groups = better_and_worse_pairs(2);
  // The first group's samples, of rewards 1 and 0, are one execution; the others, 1 and 0, are two.
  for (Sample& sample : groups[0].samples) sample.rollout_id = 5;
  const TrainBatch batch = make_train_batch(groups, {algo::RewardNormalization::kMean, "", {}});
  const TrainReport report = trainer.train(batch);
  EXPECT_DOUBLE_EQ(report.rollout.at("rollout/raw_reward"), (0.5 + 1 + 0) / 3);
  EXPECT_DOUBLE_EQ(report.rollout.at("rollout/rewards"), 0);
  const auto own = trainer.config().kl_type;
  EXPECT_EQ(own, algo::KlType::kK1) << "old less reference, whose means are logged too";
  EXPECT_TRUE(report.rollout.contains("rollout/kl"));
}

TEST(OldActor, LagsOneHandOverBehindTheEngine) {
  const auto network = load();
  TrainConfig config = config_for(4);
  config.keep_old_actor = true;
  Trainer trainer(*network, config, kClock, {.old_actor = load()});
  const TrainBatch batch = make_train_batch(better_and_worse_pairs(2), {});
  const Tensor start = network->weights().flat().clone();
  EXPECT_NEAR(trainer.train(batch).steps[0].metrics.at("train/ppo_kl"), 0, 1e-6);
  const Tensor after_one = network->weights().flat().clone();
  trainer.weights_published();
  EXPECT_TRUE(at::equal(trainer.old_actor()->weights().flat(), start));
  EXPECT_TRUE(at::equal(trainer.rollout_actor(), after_one));
  EXPECT_NE(trainer.train(batch).steps[0].metrics.at("train/ppo_kl"), 0);
  trainer.weights_published();
  EXPECT_TRUE(at::equal(trainer.old_actor()->weights().flat(), after_one));
}

TEST(OldActor, OfAnAdapterIsASecondAdapterOverTheSameNumbers) {
  const auto network = load();
  model::Precision over = model::Precision::of("float32");
  over.shared = &network->weights();
  auto other = model::make_blank_network(network->config(), over);
  model::AdapterConfig adapter;
  adapter.targets = {"q_proj", "down_proj"};
  const model::AdapterForm form = model::form_of(adapter, network->config());
  for (model::Network* each : {network.get(), other.get()}) model::add_adapters(*each, form);
  network->adapters()->at(0)->begin(adapter.init, 3);
  TrainConfig config = config_for(4, /*lr=*/1e-2);
  config.keep_old_actor = true;
  const Tensor base = network->weights().flat().clone(), start = network->trained().flat().clone();
  Trainer trainer(*network, config, kClock, {.old_actor = std::move(other)});
  const TrainBatch batch = make_train_batch(better_and_worse_pairs(2), {});
  EXPECT_NEAR(trainer.train(batch).steps[0].metrics.at("train/ppo_kl"), 0, 1e-6);
  const Tensor after_one = network->trained().flat().clone();
  EXPECT_FALSE(at::equal(after_one, start));
  trainer.weights_published();
  EXPECT_TRUE(at::equal(trainer.old_actor()->trained().flat(), start));
  EXPECT_TRUE(at::equal(trainer.rollout_actor(), after_one));
  EXPECT_NE(trainer.train(batch).steps[0].metrics.at("train/ppo_kl"), 0);
  trainer.weights_published();
  EXPECT_TRUE(at::equal(trainer.old_actor()->trained().flat(), after_one));
  EXPECT_TRUE(at::equal(network->weights().flat(), base));
  EXPECT_TRUE(trainer.old_actor()->weights().flat().is_alias_of(network->weights().flat()));
}

TEST(FrozenWeights, StayAsTheyAreAndCountInNoNorm) {
  const auto network = load();
  TrainConfig config = config_for(4);
  for (const model::NamedWeight& weight : network->weights().tensors()) {
    if (weight.name.find("mlp") == std::string::npos) config.frozen.push_back(weight.name);
  }
  Trainer trainer(*network, config, kClock);
  const Tensor before = network->weights().flat().clone();
  trainer.train(make_train_batch(better_and_worse_pairs(2), {}));
  for (const model::NamedWeight& weight : network->weights().tensors()) {
    const bool is_frozen = weight.name.find("mlp") == std::string::npos;
    EXPECT_EQ(at::equal(model::Weights::view(before, weight),
                        model::Weights::view(network->weights().flat(), weight)),
              is_frozen)
        << weight.name;
  }
}

TEST(StatelessAdam, StepsBySign) {
  const auto network = load();
  TrainConfig config = config_for(4);
  config.stateless_adam = true;
  config.lr.weight_decay = 0;
  Trainer trainer(*network, config, kClock);
  const TrainBatch batch = make_train_batch(better_and_worse_pairs(2), {});
  trainer.train(batch);
  const Tensor before = network->weights().flat().clone();
  trainer.train(batch);
  const Tensor change = (network->weights().flat() - before).abs();
  // lr g / (|g| + eps): no element moves farther than the learning rate, most of them that far.
  EXPECT_LT(change.max().item<double>(), 1.001e-3);
  EXPECT_GT((change > 0.9e-3).sum().item<int64_t>(), change.numel() / 4);
}

TEST(TopPReplay, ScoresTokensInTheirNucleus) {
  const auto network = load();
  TrainConfig config = config_for(4);
  config.replays_top_p = true;
  Trainer trainer(*network, config, kClock);
  std::vector<Group> groups = better_and_worse_pairs(2);
  EXPECT_THROW(trainer.train(make_train_batch(groups, {})), ConfigError);
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      // A nucleus of one token each: nothing else could have been sampled.
      sample.top_p_offsets = {0};
      for (int64_t t = 0; t < sample.response_length(); ++t) {
        sample.top_p_ids.push_back(
            sample.tokens[static_cast<std::size_t>(sample.prompt_length + t)]);
        sample.top_p_offsets.push_back(t + 1);
      }
    }
  }
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  for (const auto& log_probs : report.log_probs) {
    for (const float log_prob : log_probs) EXPECT_EQ(log_prob, 0.0F);
  }
}

TEST(TopPReplay, AResponseWithoutATokenHasNoNucleus) {
  const auto network = load();
  TrainConfig config = config_for(2);
  config.replays_top_p = true;
  Trainer trainer(*network, config, kClock);
  std::vector<Group> groups = better_and_worse_pairs(1);
  Sample& empty = groups[0].samples[1];
  empty.tokens.resize(static_cast<std::size_t>(empty.prompt_length));
  Sample& other = groups[0].samples[0];
  other.top_p_offsets = {0};
  for (int64_t t = 0; t < other.response_length(); ++t) {
    other.top_p_ids.push_back(other.tokens[static_cast<std::size_t>(other.prompt_length + t)]);
    other.top_p_offsets.push_back(t + 1);
  }
  EXPECT_EQ(trainer.train(make_train_batch(groups, {})).steps.size(), 1U);
}

TEST(OverlongPenalty, FallsIntoTheRewardBeforeGroupsAreNormalised) {
  TrainBatchConfig config{algo::RewardNormalization::kMean, "", algo::OverlongPenalty{4, 2, 1.0}};
  const TrainBatch batch = make_train_batch(better_and_worse_pairs(1), config);
  // Lengths 3 and 4 of at most 4, with the last 2 punished: rewards 1 - 0.5 and 0 - 1.
  EXPECT_DOUBLE_EQ(batch.samples[0].reward, 0.75);
  EXPECT_DOUBLE_EQ(batch.samples[1].reward, -0.75);
  EXPECT_DOUBLE_EQ(batch.samples[0].raw_reward, 1.0);
}

}  // namespace
}  // namespace slime::train
