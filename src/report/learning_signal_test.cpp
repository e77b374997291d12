#include "report/learning_signal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::report {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// One group per list, one sample of two tokens per reward.
std::vector<Group> rewarded(const std::vector<std::vector<double>>& rewards,
                            const std::string& response = "\\boxed{1}") {
  std::vector<Group> groups;
  for (const std::vector<double>& of_group : rewards) {
    Group& group = groups.emplace_back();
    for (const double reward : of_group) {
      Sample& sample = group.samples.emplace_back();
      sample.prompt_length = 1;
      sample.tokens = {1, 2, 3};
      sample.response = response;
      sample.reward = reward;
      sample.status = Status::kCompleted;
    }
  }
  return groups;
}

train::TrainReport with_norm(double norm) {
  train::TrainReport report;
  report.steps.push_back({.step = 0, .metrics = {{"train/grad_norm", norm}}, .skipped = ""});
  return report;
}

config::RunConfig math_run() {
  config::RunConfig config;
  config.rm_type = "math";
  config.rollout_max_response_len = 16;
  return config;
}

std::string said(const std::vector<Group>& groups, double norm,
                 const config::RunConfig& config = math_run()) {
  const train::TrainReport report = with_norm(norm);
  return LearningSignal(config).line_of(7, groups, &report).value_or("nothing");
}

TEST(LearningSignal, AStepThatTeachesIsNotMentioned) {
  EXPECT_EQ(said(rewarded({{0, 1}, {1, 1}}), 0.5), "nothing");
}

TEST(LearningSignal, EqualRewardsAreToldWithTheirLikelyCause) {
  EXPECT_EQ(
      said(rewarded({{1, 1}, {1, 1}}), 0),
      "step 7: all 4 rewards are 1: the task is too easy for the model, or the reward accepts "
      "everything");
  EXPECT_THAT(said(rewarded({{0, 0}, {0, 0}}), 0),
              HasSubstr("all 4 rewards are 0: the task is too hard for the model, or the reward"));
  EXPECT_THAT(said(rewarded({{0, 0}}, "so it is 5"), 0),
              HasSubstr("nearly no response has \"\\boxed{\", which --rm-type math looks for"));
  EXPECT_THAT(said(rewarded({{-1, -1}}), 0), HasSubstr("all 2 rewards are -1"));
  EXPECT_THAT(said(rewarded({{0.5, 0.5}}), 0),
              HasSubstr("0.5: the reward says the same of every response"));
  std::vector<Group> cut = rewarded({{0, 0}});
  for (Sample& sample : cut[0].samples) sample.status = Status::kTruncated;
  EXPECT_THAT(said(cut, 0), HasSubstr("cut off before their end (--rollout-max-response-len 16)"));
}

TEST(LearningSignal, TheMarkAtTheEndIsNamedWhereAFunctionOfTheUsersSeesIt) {
  config::RunConfig config = math_run();
  config.rm_type = "";
  config.custom_rm_path = "my_reward.py";
  const std::string flag = "--rollout-skip-special-tokens leaves it out";
  EXPECT_THAT(said(rewarded({{0, 0}}, "{}<|im_end|>"), 0, config),
              HasSubstr("sample.response ends in \"<|im_end|>\", which the function"));
  EXPECT_THAT(said(rewarded({{0, 0}}, "{}</s>"), 0, config), HasSubstr(flag));
  EXPECT_THAT(said(rewarded({{0, 0}}, "{}"), 0, config), Not(HasSubstr(flag)));
  EXPECT_THAT(said(rewarded({{0, 0}}, "a < b, c > d, e>"), 0, config), Not(HasSubstr(flag)));
  EXPECT_THAT(said(rewarded({{0, 0}}, "\\boxed{1}<|im_end|>"), 0), Not(HasSubstr(flag)));
  config.rollout_skip_special_tokens = true;
  EXPECT_THAT(said(rewarded({{0, 0}}, "{}<|im_end|>"), 0, config), Not(HasSubstr(flag)));
}

TEST(LearningSignal, ZeroGradientsAreTold) {
  EXPECT_THAT(said(rewarded({{0, 0}, {1, 1}}), 0),
              HasSubstr("the gradients are 0: the rewards of each prompt's responses are equal"));
  EXPECT_THAT(said(rewarded({{0, 1}}), 0), HasSubstr("the loss does not depend on the weights"));
  EXPECT_EQ(said(rewarded({{0, 0}, {1, 1}}), 1e-9), "nothing");
}

TEST(LearningSignal, AStepWithoutATrainedTokenIsTold) {
  std::vector<Group> groups = rewarded({{0, 1}});
  for (Sample& sample : groups[0].samples) sample.loss_mask = {0, 0};
  EXPECT_EQ(said(groups, 0),
            "step 7: no token was trained: loss masks leave out every token of the responses");
  for (Sample& sample : groups[0].samples) sample.remove_sample = true;
  EXPECT_THAT(said(groups, 0), EndsWith("every sample was removed from training (remove_sample)"));
  for (Sample& sample : groups[0].samples) {
    sample.tokens = {1};
    sample.loss_mask.clear();
  }
  EXPECT_THAT(said(groups, 0), EndsWith("all responses are empty"));
}

TEST(LearningSignal, DistillationNeedsNoRewards) {
  config::RunConfig config = math_run();
  config.use_opd = true;
  EXPECT_EQ(said(rewarded({{0, 0}}), 0.5, config), "nothing");
}

TEST(LearningSignal, TheThirdInARowAsksWhetherTheRunMakesSense) {
  const config::RunConfig config = math_run();
  LearningSignal signal(config);
  const train::TrainReport none = with_norm(0), some = with_norm(1);
  const std::vector<Group> flat = rewarded({{0, 0}}), varied = rewarded({{0, 1}});
  EXPECT_THAT(*signal.line_of(0, flat, &none), Not(HasSubstr("make sense")));
  EXPECT_THAT(*signal.line_of(1, flat, &none), Not(HasSubstr("make sense")));
  EXPECT_THAT(
      *signal.line_of(2, flat, &none),
      EndsWith("3 steps in a row have taught the model nothing: does this run make sense?"));
  EXPECT_THAT(*signal.line_of(3, flat, &none), StartsWith("step 3: all 2 rewards are 0"));
  EXPECT_THAT(*signal.line_of(3, flat, &none), Not(HasSubstr("make sense")));
  EXPECT_EQ(signal.line_of(4, varied, &some), std::nullopt);
  EXPECT_THAT(*signal.line_of(5, flat, nullptr), Not(HasSubstr("make sense")));
}

}  // namespace
}  // namespace slime::report
