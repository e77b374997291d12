#include "setup/run_schedule.h"

#include <gtest/gtest.h>

namespace slime::setup {
namespace {

std::string when_saved(std::optional<int64_t> interval, int64_t num_steps,
                       std::optional<EpochRows> epoch = std::nullopt) {
  RunSchedule schedule;
  schedule.num_steps = num_steps;
  schedule.save_interval = interval;
  schedule.epoch = epoch;
  int64_t saves = 0;
  for (int64_t step = 0; step < num_steps; ++step) saves += schedule.saves_after(step) ? 1 : 0;
  const std::string text = schedule.when_saved();
  EXPECT_EQ(text.starts_with("only at the end"), saves == 1) << text;
  return text;
}

TEST(RunSchedule, SaysWhenItSavesAsItDoes) {
  EXPECT_EQ(when_saved(std::nullopt, 600), "only at the end (--save-interval N: every N rollouts)");
  EXPECT_EQ(when_saved(1'000'000, 600),
            "only at the end (--save-interval 1000000, of 600 rollouts)");
  EXPECT_EQ(when_saved(600, 600), "only at the end (--save-interval 600, of 600 rollouts)");
  EXPECT_EQ(when_saved(20, 600), "every 20 rollouts and at the end");
  EXPECT_EQ(when_saved(1, 600), "after each rollout");
}

TEST(RunSchedule, TheEndOfAnEpochCountsWhereThereIsAnIntervalAndTheLengthIsInEpochs) {
  EXPECT_EQ(when_saved(50, 10, EpochRows{.in_epoch = 20, .in_rollout = 4}),
            "at the end of each epoch, and every 50 rollouts and at the end");
  EXPECT_EQ(when_saved(50, 5, EpochRows{.in_epoch = 20, .in_rollout = 4}),
            "only at the end (--save-interval 50, of 5 rollouts)");
}

}  // namespace
}  // namespace slime::setup
