#include "setup/train_config.h"

#include <gtest/gtest.h>

namespace slime::setup {
namespace {

config::RunConfig small_run() {
  config::RunConfig config;
  config.rollout_batch_size = 8;
  config.n_samples_per_prompt = 2;
  config.global_batch_size = 16;
  return config;
}

TEST(MakeTrainConfig, TheLastPartOfWsdHasItsShapeAndLength) {
  config::RunConfig config = small_run();
  config.lr = 1;
  config.lr_decay_style = "WSD";
  config.lr_wsd_decay_style = "linear";
  config.lr_wsd_decay_iters = 4;
  const train::LrSchedule lr = make_train_config(config, 10).lr;
  EXPECT_EQ(lr.wsd_decay_samples, 4 * 16);
  EXPECT_DOUBLE_EQ(train::learning_rate(lr, 6 * 16), 1);    // before the last four steps
  EXPECT_DOUBLE_EQ(train::learning_rate(lr, 8 * 16), 0.5);  // half of them, in a straight line
}

TEST(MakeTrainConfig, AWarmUpLongerThanTheRunIsCutAndTold) {
  config::RunConfig config = small_run();
  config.lr_decay_style = "cosine";
  config.lr_warmup_iters = 100;
  EXPECT_EQ(make_train_config(config, 10).lr.warmup_samples, 9 * 16);
  EXPECT_EQ(schedule_notes(config, 10),
            (std::vector<std::string>{"--lr-warmup-iters 100: the run has 10 steps, so the warm-up "
                                      "takes 9"}));
  EXPECT_TRUE(schedule_notes(config, 200).empty());
  config.lr_decay_iters = 4;
  EXPECT_EQ(make_train_config(config, 200).lr.warmup_samples, 3 * 16);
  EXPECT_EQ(schedule_notes(config, 200),
            (std::vector<std::string>{"--lr-warmup-iters 100: the decay has 4 steps, so the "
                                      "warm-up takes 3"}));
}

TEST(MakeTrainConfig, WhatTheRunIsTooShortForIsTold) {
  config::RunConfig config = small_run();
  config.advantage_estimator = "ppo";
  config::RunConfig critic = config;
  critic.lr_warmup_iters = 50;
  config.critic = std::make_shared<const config::RunConfig>(critic);
  config.num_critic_only_steps = 3;
  config.kl_coef = 0.1;
  config.ref_update_interval = 4;
  config.profile = true;  // of rollouts 10 and 11
  EXPECT_EQ(schedule_notes(config, 3),
            (std::vector<std::string>{
                "--profile: nothing is traced, the run has 3 rollouts and --profile-step-start is "
                "10",
                "--megatron-config-path: critic: --lr-warmup-iters 50: the run has 3 steps, so the "
                "warm-up takes 2",
                "--num-critic-only-steps 3: the run has 3 rollouts, so the actor is never trained",
                "--ref-update-interval 4: the run has 3 rollouts, so the reference is never "
                "updated"}));
  EXPECT_TRUE(schedule_notes(config, 100).empty());
}

TEST(MakeTrainConfig, WeightDecayIsTheFlags) {
  config::RunConfig config = small_run();
  config.weight_decay = 0.25;
  EXPECT_EQ(make_train_config(config, 10).lr.weight_decay, 0.25);
}

}  // namespace
}  // namespace slime::setup
