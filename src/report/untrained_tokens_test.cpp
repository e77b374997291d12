#include "report/untrained_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/version_runs.h"

namespace slime::report {
namespace {

using testing::HasSubstr;
using testing::Not;

Sample whole_sample(int64_t length, std::vector<uint8_t> mask = {}) {
  Sample sample;
  sample.prompt_length = 2;
  sample.tokens.resize(static_cast<std::size_t>(2 + length));
  sample.loss_mask = std::move(mask);
  sample.versions = {{0, length}};
  sample.status = Status::kCompleted;
  sample.reward = 1.0;
  return sample;
}

Group group_with(std::vector<Sample> samples) { return {.samples = std::move(samples)}; }

TEST(UntrainedTokens, OfWholeSamplesThereAreNone) {
  const std::vector<Group> groups{group_with({whole_sample(3), whole_sample(5)})};
  const SampledTokens tokens = sampled_tokens(groups, {}, false);
  EXPECT_EQ(tokens.trained, 8);
  EXPECT_EQ(untrained_metrics(tokens), (Metrics{{"perf/untrained_sampled_tokens", 0},
                                                {"rollout/untrained_sampled_tokens", 0}}));
  EXPECT_FALSE(UntrainedNotice().line(0, tokens));
}

TEST(UntrainedTokens, CausesAreToldApart) {
  Sample removed = whole_sample(4);
  removed.remove_sample = true;
  Sample failed = whole_sample(6);
  failed.status = Status::kAborted;
  failed.reward = nullptr;
  const std::vector<Group> groups{
      group_with({whole_sample(10, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1}), removed, failed})};
  const SampledTokens tokens =
      sampled_tokens(groups, {{"dropped_zero_std", 20}, {"lost", 9}, {"discarded", 0}}, false);
  EXPECT_EQ(tokens.trained, 9);
  EXPECT_EQ(
      tokens.untrained,
      (UntrainedTokens{
          {"dropped_zero_std", 20}, {"failed", 6}, {"lost", 9}, {"masked", 1}, {"removed", 4}}));
  const Metrics metrics = untrained_metrics(tokens);
  EXPECT_NEAR(metrics.at("rollout/untrained_sampled_tokens"), 40.0 / 49, 1e-12);
  EXPECT_NEAR(metrics.at("rollout/untrained/dropped_zero_std"), 20.0 / 49, 1e-12);
}

TEST(UntrainedTokens, WhatWasSampledTooLateIsAMatterOfTime) {
  const SampledTokens tokens{.trained = 60, .untrained = {{"discarded", 20}, {"lost", 20}}};
  EXPECT_EQ(untrained_metrics(tokens), (Metrics{{"perf/untrained_sampled_tokens", 0.4},
                                                {"rollout/untrained_sampled_tokens", 0.25},
                                                {"rollout/untrained/lost", 0.25}}));
}

TEST(UntrainedTokens, WhatAToolWroteWasNotSampled) {
  Sample sample = whole_sample(4, {1, 0, 0, 1});
  sample.versions = {{0, 1}, {kNoVersion, 2}, {0, 1}};
  const std::vector<Group> groups{group_with({sample})};
  EXPECT_TRUE(sampled_tokens(groups, {}, false).untrained.empty());
}

TEST(UntrainedTokens, TokensOfOlderWeightsAreNotCountedTwice) {
  const std::vector<Group> groups{group_with({whole_sample(4, {0, 0, 0, 1})})};
  EXPECT_EQ(sampled_tokens(groups, {{"older", 2}}, false).untrained,
            (UntrainedTokens{{"masked", 1}, {"older", 2}}));
}

TEST(UntrainedTokens, MasksOfFunctionsAreTheirs) {
  const std::vector<Group> groups{group_with({whole_sample(4, {0, 0, 0, 1})})};
  EXPECT_TRUE(sampled_tokens(groups, {}, true).untrained.empty());
}

TEST(UntrainedTokens, ALineComesOnceForEachCauseAndAgainWhenItHasDoubled) {
  UntrainedNotice notice;
  const auto line = [&](int64_t step, UntrainedTokens untrained) {
    return notice.line(step, {.trained = 1000, .untrained = std::move(untrained)}).value_or("");
  };
  EXPECT_EQ(line(0, {{"lost", 10}}), "");  // 10 of 1,010: below 1 %
  EXPECT_THAT(line(1, {{"lost", 30}}), HasSubstr("step 1: 2.9 % of the sampled tokens"));
  EXPECT_EQ(line(2, {{"lost", 40}}), "");
  EXPECT_THAT(line(3, {{"lost", 90}, {"removed", 5}}),
              testing::AllOf(HasSubstr("user's function"), Not(HasSubstr("remove_sample"))));
  EXPECT_THAT(line(4, {{"lost", 90}, {"dropped_stale", 200}}),
              HasSubstr("15.5 % of groups that were dropped (stale)"));
}

}  // namespace
}  // namespace slime::report
