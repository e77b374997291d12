#include "report/training_outcomes.h"

#include <gtest/gtest.h>

namespace slime::report {
namespace {

/// Groups of two samples with ordinals 10, 11, ...
std::vector<Group> groups_of_two(int64_t count) {
  std::vector<Group> groups;
  for (int64_t i = 0; i < count; ++i) groups.push_back({10 + i, std::vector<Sample>(2)});
  return groups;
}

train::TrainReport report_of(const std::vector<train::Indices>& steps,
                             const std::vector<std::string>& skipped) {
  train::TrainReport report{.samples_of_steps = steps};
  for (const std::string& why : skipped) report.steps.push_back({.skipped = why});
  return report;
}

TEST(TrainingOutcomes, APromptWhoseUpdateWasSkippedIsNotTrained) {
  const auto outcomes =
      training_outcomes(groups_of_two(2), report_of({{0, 1}, {2, 3}}, {"", "the loss is nan"}), 7);
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0].ordinal, 10);
  EXPECT_EQ(outcomes[0].outcome, buffer::Outcome::kTrained);
  EXPECT_EQ(outcomes[0].step, 7);
  EXPECT_EQ(outcomes[0].reason, "");
  EXPECT_EQ(outcomes[1].outcome, buffer::Outcome::kSkipped);
  EXPECT_EQ(outcomes[1].step, 7);
  EXPECT_EQ(outcomes[1].reason, "the loss is nan");
}

TEST(TrainingOutcomes, ItSaysHowManyTokensWereTrained) {
  std::vector<Group> groups = groups_of_two(1);
  groups[0].samples[0].log_probs = {-0.5F, -0.1F};
  groups[0].samples[1].log_probs = {-0.5F};
  const auto outcomes = training_outcomes(groups, report_of({{0, 1}}, {""}), 0);
  EXPECT_EQ(outcomes[0].tokens, 3);
}

TEST(TrainingOutcomes, AGroupInTwoUpdatesIsTrainedByOneAndSaysWhatTheOtherWas) {
  const auto outcomes = training_outcomes(groups_of_two(1), report_of({{0}, {1}}, {"", "nan"}), 0);
  EXPECT_EQ(outcomes[0].outcome, buffer::Outcome::kTrained);
  EXPECT_EQ(outcomes[0].reason, "1 of 2 samples skipped: nan");
}

TEST(TrainingOutcomes, UpdatesAfterTheRunWasStoppedTrainedNothing) {
  train::TrainReport report = report_of({{0, 1}, {2, 3}}, {"nan"});
  report.stopped = "training stopped after 4 steps in a row without finite gradients";
  const auto outcomes = training_outcomes(groups_of_two(2), report, 0);
  EXPECT_EQ(outcomes[0].reason, "nan");
  EXPECT_EQ(outcomes[1].outcome, buffer::Outcome::kSkipped);
  EXPECT_EQ(outcomes[1].reason, report.stopped);
}

TEST(TrainingOutcomes, ASampleInNoUpdateTrainedNothing) {
  const auto outcomes = training_outcomes(groups_of_two(2), report_of({{0, 1}}, {""}), 0);
  EXPECT_EQ(outcomes[0].outcome, buffer::Outcome::kTrained);
  EXPECT_EQ(outcomes[1].outcome, buffer::Outcome::kSkipped);
}

}  // namespace
}  // namespace slime::report
