#include "simulate/modes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"

namespace slime::simulate {
namespace {

namespace fs = std::filesystem;

/// Ten tokens at 0.1 s, then a second of training.
ModesConfig small_plan() {
  ModesConfig plan{.num_devices = 1,
                   .prompts_per_step = 1,
                   .samples_per_prompt = 1,
                   .num_steps = 5,
                   .prompt_tokens = 1,
                   .max_response = 10,
                   .lengths_of_file = {10}};
  plan.cost = {.step = 0.1,
               .step_per_sequence = 0,
               .prefill_per_token = 0,
               .update = 0,
               .train = 1,
               .train_per_token = 0,
               .reward = 0};
  return plan;
}

fs::path ledger_file() {
  return fs::temp_directory_path() / fmt::format("slime_plan_{}", ::getpid());
}

TEST(Plan, TakingTurnsAStepTakesBothTimes) {
  const std::vector<Prediction> rows = predict(small_plan(), ledger_file());
  ASSERT_EQ(rows.size(), 3u);  // nothing is split on one device
  EXPECT_NEAR(rows[0].steps_per_hour(), 1800, 1e-3);
  EXPECT_NEAR(rows[0].devices_idle(), 0, 1e-6);
  EXPECT_EQ(rows[0].figures.largest_lag, 0);
}

TEST(Plan, WhatNoDevicesCanDoIsRefused) {
  ModesConfig plan;
  plan.num_devices = plan.num_trainers = 1;
  EXPECT_NO_THROW(check_modes(plan)) << "taking turns";
  plan.num_trainers = 5;
  EXPECT_THROW(check_modes(plan), ConfigError);
  plan.num_devices = 6;
  EXPECT_NO_THROW(check_modes(plan));
  plan.prompt_tokens = 256;
  plan.max_response = 8192;
  plan.kv_tokens = 8447;
  EXPECT_THROW(check_modes(plan), ConfigError);
  plan.kv_tokens = 8448;
  EXPECT_NO_THROW(check_modes(plan));
}

TEST(Plan, ALongRunHasNoLimitOfTurns) {
  // Each of 4,000 responses takes more than a hundred turns of the queue in all modes together.
  ModesConfig plan = small_plan();
  plan.prompts_per_step = 400;
  plan.num_steps = 200;
  const std::vector<Prediction> rows = predict(plan, ledger_file());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].figures.num_groups, 400 * 200);
}

TEST(Plan, BesideEachOtherAStepTakesTheLongerTime) {
  ModesConfig plan = small_plan();
  plan.num_devices = 2;
  plan.num_steps = 50;
  const std::vector<Prediction> rows = predict(plan, ledger_file());
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_NEAR(rows[3].steps_per_hour(), 1800, 1e-3);  // one after the other
  EXPECT_NEAR(rows[3].trainers_idle(), 0.5, 1e-6);
  EXPECT_GT(rows[5].steps_per_hour(), 3400);  // one second, but for the first step
  EXPECT_LE(rows[5].figures.largest_lag, 1);
  EXPECT_NE(to_table(rows, plan).find("Prediction, not a measurement"), std::string::npos);
}

TEST(Plan, LengthsThatAreNoneAreAConfigurationError) {
  EXPECT_THROW(read_lengths("/nowhere"), ConfigError);
}

}  // namespace
}  // namespace slime::simulate
