#include "train/run_parts.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "core/clock.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"
#include "train/network_for_tests.h"

namespace slime::train {
namespace {

namespace fs = std::filesystem;
using enum RunPart;
using testing::ElementsAre;
using testing::HasSubstr;

std::set<RunPart> left_out(uint32_t flags) {
  std::set<RunPart> parts;
  for (const PartRow& row : run_parts())
    if (!is_carried(row, flags)) parts.insert(row.part);
  return parts;
}

TEST(RunParts, EachPartIsDeclaredOnceWithAPlaceInTheCheckpoint) {
  std::set<RunPart> seen;
  for (const PartRow& row : run_parts()) {
    EXPECT_TRUE(seen.insert(row.part).second) << row.name;
    EXPECT_FALSE(row.stems.empty()) << row.name;
    EXPECT_FALSE(std::string(row.begins).empty()) << row.name;
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kDay) + 1);
}

TEST(RunParts, FlagsLeaveOutWhatTheySayAndNothingElse) {
  EXPECT_TRUE(left_out(0).empty());
  const std::set<RunPart> optimizers{kOptimizer, kCriticOptimizer};
  EXPECT_EQ(left_out(kNoSaveOptim), optimizers);
  EXPECT_EQ(left_out(kNoLoadOptim), optimizers);
  EXPECT_EQ(left_out(kOtherFreeze), std::set<RunPart>{kOptimizer});
  EXPECT_EQ(left_out(kCriticLoad), (std::set<RunPart>{kCritic, kCriticHead}));
  // --finetune takes networks that are trained, and nothing else.
  std::set<RunPart> all;
  for (const PartRow& row : run_parts()) all.insert(row.part);
  for (const RunPart taken : {kWeights, kCritic, kCriticHead}) all.erase(taken);
  EXPECT_EQ(left_out(kFinetune), all);
}

TEST(RunParts, WhatAFlagForgetsIsSaidOfThePartsThatTheRunHas) {
  EXPECT_TRUE(forgotten(0, {kOptimizer, kSchedule}).empty());
  EXPECT_THAT(forgotten(kNoLoadOptim, {kOptimizer, kSchedule}),
              ElementsAre(testing::AllOf(HasSubstr("--no-load-optim"), HasSubstr("Adam's moments"),
                                         HasSubstr("zero moments at step 0"))));
  EXPECT_TRUE(forgotten(kNoSaveOptim, {kReference}).empty());
}

std::vector<Sample> some_samples(int64_t seed) {
  std::vector<Sample> samples(2);
  for (int64_t i = 0; i < 2; ++i) {
    samples[i].prompt_length = 2;
    samples[i].group = i;
    samples[i].ordinal = i;
    samples[i].reward = static_cast<double>(i);
    for (int64_t t = 0; t < 6; ++t)
      samples[i].tokens.push_back(static_cast<TokenId>((seed * 31 + i * 17 + t * 7) % 300));
    samples[i].log_probs.assign(4, -1.0F);
  }
  return samples;
}

/// A trainer with every network that there is: PPO's critic, a moving reference, old actors.
struct Full {
  explicit Full(const fs::path& model = kModel) {
    const model::Precision precision = model::Precision::of("float32");
    network = model::load_network(model, precision);
    config.advantage = algo::Gae{.kl_coef = 0.1};
    config.critic = CriticConfig{.lr = {.lr = 1e-2, .decay_samples = 100}};
    config.keep_old_actor = true;
    config.ref_update_interval = 2;
    config.batching.global_batch_size = 2;
    config.batching.micro_batch_size = 2;
    config.lr = {.lr = 1e-2, .decay_samples = 100};
    OtherNetworks others;
    for (auto* other : {&others.reference, &others.old_actor, &others.critic})
      *other = model::load_network(kModel, precision);
    trainer = std::make_unique<Trainer>(*network, config, clock, std::move(others));
  }
  void train(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      if (step > from) trainer->weights_published();  // so that the last weights are in one network
      const std::vector<Group> groups{{.ordinal = 0, .samples = some_samples(step)}};
      trainer->train(make_train_batch(groups, {}));
    }
  }
  /// What the trainer has of each part, in one number that differs between two states.
  std::map<RunPart, double> digest() {
    const auto sum = [](const Tensor& tensor) {
      return tensor.to(at::kDouble).abs().sum().item<double>();
    };
    const auto moments = [&](Optimizer& optimizer) {
      return sum(optimizer.owned().front().first_moment) +
             1000 * static_cast<double>(optimizer.num_steps());
    };
    const TrainerState state = trainer->state();
    return {{kOptimizer, moments(trainer->optimizer())},
            {kCritic, sum(trainer->critic()->network().weights().flat())},
            {kCriticHead, sum(trainer->critic()->head().weights().flat())},
            {kCriticOptimizer, moments(trainer->critic()->network_optimizer()) +
                                   moments(trainer->critic()->head_optimizer())},
            {kReference, sum(trainer->reference()->weights().flat())},
            {kOldActor, sum(trainer->old_actor()->weights().flat())},
            {kRolloutActor, sum(trainer->rollout_actor())},
            {kSchedule, static_cast<double>(state.samples_done + state.critic.samples_done)},
            {kCounters, static_cast<double>(state.num_steps + 100 * state.rollouts_done)}};
  }
  SystemClock clock;
  TrainConfig config;
  std::unique_ptr<model::Network> network;
  std::unique_ptr<Trainer> trainer;
};

/// Every combination of flags of saving and of restoring, and every part that a trainer has: it goes
/// on exactly where no flag leaves it out, and begins as a new run's does where one does.
TEST(RunParts, ATrainerGoesOnWithExactlyThePartsThatNoFlagLeavesOut) {
  const fs::path root =
      fs::temp_directory_path() / ("slime_run_parts_" + std::to_string(::getpid()));
  fs::remove_all(root);
  Full run;
  run.train(0, 3);
  const std::map<RunPart, double> went = run.digest();
  for (const bool saves_optimizer : {true, false}) {
    save_checkpoint({.root = root, .model_source = kModel, .save_optimizer = saves_optimizer}, 2,
                    *run.trainer, {});
    const auto found = find_checkpoint(root, [](const std::string&) {});
    ASSERT_TRUE(found.has_value());
    const std::map<RunPart, double> begun = Full(found->directory).digest();
    for (const uint32_t load : {0U, uint32_t{kNoLoadOptim}, uint32_t{kFinetune},
                                kFinetune | kCriticLoad, uint32_t{kOtherFreeze}}) {
      Full next(found->directory);
      std::vector<std::string> told;
      restore_trainer(*found, *next.trainer, load,
                      [&](const std::string& line) { told.push_back(line); });
      const uint32_t flags = load | (saves_optimizer ? 0U : uint32_t{kNoSaveOptim});
      for (const auto& [part, value] : next.digest()) {
        const PartRow& row = row_of(part);
        const double expected = is_carried(row, flags) ? went.at(part) : begun.at(part);
        EXPECT_EQ(value, expected) << row.name << ", flags " << flags;
        EXPECT_NE(went.at(part), begun.at(part)) << row.name << ": the test would see nothing";
      }
      std::size_t lacking = 0;  // that no flag of this start explains
      for (const RunPart part : {kOptimizer, kCriticOptimizer})
        lacking += !saves_optimizer && is_carried(row_of(part), load) ? 1 : 0;
      EXPECT_EQ(told.size(), lacking);
    }
  }
  fs::remove_all(root);
}

/// Zero moments at a late step are corrected as if they had been averaged: the first update would be
/// up to sqrt(1 - beta2) / (1 - beta1) = 3.16 times too large.
TEST(RunParts, MomentsThatBeginAnewBeginAtStepZero) {
  const fs::path root =
      fs::temp_directory_path() / ("slime_first_update_" + std::to_string(::getpid()));
  fs::remove_all(root);
  Full run;
  run.train(0, 4);
  save_checkpoint({.root = root, .save_optimizer = false}, 3, *run.trainer, {});
  const auto found = find_checkpoint(root, [](const std::string&) {});
  Full next(found->directory);
  restore_trainer(*found, *next.trainer, 0, [](const std::string&) {});
  EXPECT_EQ(next.trainer->state().num_updates, 0);
  EXPECT_EQ(next.trainer->state().critic.num_updates, 0);
  EXPECT_EQ(next.trainer->state().rollouts_done, 4);
  fs::remove_all(root);
}

TEST(RunParts, AReferenceThatHadMovedGoesOnWithoutItsIntervalAndIsSavedAgain) {
  const fs::path root =
      fs::temp_directory_path() / ("slime_moved_ref_" + std::to_string(::getpid()));
  fs::remove_all(root);
  Full run;
  run.train(0, 3);
  save_checkpoint({.root = root}, 2, *run.trainer, {});
  const auto found = find_checkpoint(root, [](const std::string&) {});
  Full first(found->directory);
  first.config.ref_update_interval = 0;
  OtherNetworks others;
  const model::Precision precision = model::Precision::of("float32");
  for (auto* other : {&others.reference, &others.old_actor, &others.critic})
    *other = model::load_network(kModel, precision);
  Trainer still(*first.network, first.config, first.clock, std::move(others));
  std::vector<std::string> told;
  restore_trainer(*found, still, 0, [&](const std::string& line) { told.push_back(line); });
  EXPECT_THAT(told, ElementsAre(HasSubstr("a reference that had moved")));
  EXPECT_TRUE(
      at::equal(still.reference()->weights().flat(), run.trainer->reference()->weights().flat()));
  const fs::path again = save_checkpoint({.root = root}, 3, still, {});
  EXPECT_TRUE(fs::exists(again / "optimizer" / "reference.safetensors"));
  fs::remove_all(root);
}

TEST(RunParts, AReferenceThatBeginsToMoveIsToldInOneLine) {
  const fs::path root =
      fs::temp_directory_path() / ("slime_moving_ref_" + std::to_string(::getpid()));
  fs::remove_all(root);
  Full run;
  fs::path saved = save_checkpoint({.root = root}, 2, *run.trainer, {});
  fs::remove(saved / "optimizer" / "reference.safetensors");
  std::vector<std::string> told;
  restore_trainer(read_checkpoint(saved, 2), *run.trainer, 0,
                  [&](const std::string& line) { told.push_back(line); });
  EXPECT_THAT(told, ElementsAre(testing::AllOf(HasSubstr("--ref-update-interval"),
                                               HasSubstr("the model of --ref-load"))));
  fs::remove_all(root);
}

}  // namespace
}  // namespace slime::train
