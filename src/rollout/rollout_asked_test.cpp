// What others say of samples and groups: rewards of whole groups, sample hooks, filters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Answers on a thread of its own, as a host does.
template <typename T>
void answer_later(const AnswerFn<T>& answer, Expected<T> value) {
  std::thread([answer, value = std::move(value)] { answer(value); }).detach();
}

/// Each sample gets its place in its group.
void number_samples(Group group, const std::stop_token&, const AnswerFn<Group>& answer) {
  for (Sample& sample : group.samples) sample.reward = sample.index_in_group;
  answer_later<Group>(answer, std::move(group));
}

TEST(RolloutAsks, AGroupIsScoredInOneCallWhenAllOfItIsSampled) {
  World world;
  std::mutex mutex;
  std::map<int64_t, int> calls;
  bool were_all_sampled = true;
  world.hooks.scorer.function.emplace<GroupScorer>().ask = [&](Group group, std::stop_token stop,
                                                               AnswerFn<Group> answer) {
    {
      const std::lock_guard lock(mutex);
      ++calls[group.ordinal];
      for (const Sample& sample : group.samples)
        were_all_sampled = were_all_sampled && sample.status != Status::kPending;
    }
    number_samples(std::move(group), stop, answer);
  };
  world.hooks.scorer.rule.score = [](const Sample&,
                                     const std::stop_token&) -> Expected<json::value> {
    return failure("each by itself");
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) {
    EXPECT_EQ(calls[group.ordinal], 1);
    EXPECT_EQ(group.samples[0].reward, json::value(0));
    EXPECT_EQ(group.samples[1].reward, json::value(1));
  }
  EXPECT_TRUE(were_all_sampled);
}

TEST(RolloutAsks, AFailedCallFailsItsGroupWithTheReason) {
  World world;
  world.hooks.scorer.function.emplace<GroupScorer>().ask =
      [](Group group, const std::stop_token& stop, AnswerFn<Group> answer) {
        if (group.ordinal == 1) return answer_later<Group>(answer, failure("no such luck"));
        number_samples(std::move(group), stop, answer);
      };
  std::vector<std::string> failures;
  world.prompts.on_drop = [&](const Group& group, const std::string&) {
    for (const Sample& sample : group.samples) failures.push_back(sample.failure);
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 3u);
  EXPECT_THAT(failures, ElementsAre("reward: no such luck", "reward: no such luck"));
}

TEST(RolloutAsks, OneRewardOfAGroupThatCannotBeUsedFailsItsSample) {
  World world;
  world.hooks.scorer.function.emplace<GroupScorer>().ask = [](Group group, const std::stop_token&,
                                                              AnswerFn<Group> answer) {
    for (Sample& sample : group.samples) sample.reward = 1;
    if (group.ordinal == 0) group.samples[1].reward = "much";
    answer_later<Group>(answer, std::move(group));
  };
  world.rules.reward_problem = [](const json::value& reward) -> std::optional<std::string> {
    if (reward.is_number()) return std::nullopt;
    return "not a number";
  };
  std::vector<std::string> failures;
  world.prompts.on_drop = [&](const Group& group, const std::string&) {
    for (const Sample& sample : group.samples) failures.push_back(sample.failure);
  };
  world.run();
  EXPECT_THAT(failures, ElementsAre("", "reward: not a number"));
}

TEST(RolloutAsks, AHookSeesSamplesBeforeTheirRewards) {
  World world;
  world.hooks.ask_sample_hook = [](SampleInHook question, const std::stop_token&,
                                   AnswerFn<Sample> answer) {
    EXPECT_TRUE(question.sample.reward.is_null());
    EXPECT_FALSE(question.is_evaluation);
    if (question.sample.group == 2) return answer_later<Sample>(answer, failure("not this one"));
    question.sample.metadata["seen"] = true;
    answer_later<Sample>(answer, std::move(question.sample));
  };
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    return json::value(sample.metadata.contains("seen") ? 2.0 : 1.0);
  };
  std::string failed;
  world.prompts.on_drop = [&](const Group& group, const std::string&) {
    failed = group.samples.front().failure;
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups)
    EXPECT_EQ(group.samples.front().reward, json::value(2.0));
  EXPECT_EQ(failed, "sample hook: not this one");
}

TEST(RolloutAsks, AFilterDropsGroupsAndKeepsWhatItChanged) {
  World world;
  world.hooks.filter.emplace<AskFilterFn>() = [](Group group, const std::stop_token&,
                                                 AnswerFn<FilteredGroup> answer) {
    for (Sample& sample : group.samples) {
      EXPECT_EQ(sample.reward, json::value(1.0)) << "it is asked about groups that are scored";
      sample.remove_sample = true;
    }
    const bool keeps = group.ordinal != 0;
    answer_later<FilteredGroup>(answer,
                                FilteredGroup{.group = std::move(group),
                                              .verdict = {.keep = keeps, .reason = "the first"}});
  };
  const StepResult result = world.run();
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{0, "the first"}}));
  ASSERT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.end.drops.at("the first"), 1);
  for (const Group& group : result.groups) EXPECT_TRUE(group.samples.front().remove_sample);
}

TEST(RolloutAsks, AFilterThatFailsFailsTheGroup) {
  World world;
  world.hooks.filter.emplace<AskFilterFn>() = [](Group group, const std::stop_token&,
                                                 AnswerFn<FilteredGroup> answer) {
    if (group.ordinal == 1) return answer_later<FilteredGroup>(answer, failure("KeyError: 'pred'"));
    answer_later<FilteredGroup>(answer, FilteredGroup{.group = std::move(group), .verdict = {}});
  };
  std::string failed;
  world.prompts.on_drop = [&](const Group& group, const std::string&) {
    failed = group.samples.front().failure;
  };
  EXPECT_EQ(world.run().groups.size(), 3u);
  EXPECT_EQ(failed, "filter: KeyError: 'pred'");
}

TEST(RolloutAsks, AnEvaluationHasHooksAndGroupScoresAndNoFilter) {
  World world;
  world.rules.is_evaluation = true;
  world.hooks.ask_sample_hook = [](SampleInHook question, const std::stop_token&,
                                   AnswerFn<Sample> answer) {
    question.sample.metadata["evaluates"] = question.is_evaluation;
    answer_later<Sample>(answer, std::move(question.sample));
  };
  world.hooks.scorer.function.emplace<GroupScorer>().ask = number_samples;
  world.hooks.filter.emplace<AskFilterFn>() = [](Group, const std::stop_token&,
                                                 const AnswerFn<FilteredGroup>&) {
    FAIL() << "an evaluation is not filtered";
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  const std::vector<Group> groups =
      rollout.evaluate({group_of(0, 2), group_of(1, 2)}, world.rules, world.stop);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].samples[1].reward, json::value(1));
  EXPECT_EQ(groups[1].samples[1].metadata.at("evaluates"), json::value(true));
}

TEST(RolloutAsks, AStreamHeedsTheFilterToo) {
  World world;
  world.hooks.filter.emplace<AskFilterFn>() = [](Group group, const std::stop_token&,
                                                 AnswerFn<FilteredGroup> answer) {
    const bool keeps = group.ordinal % 2 == 1;
    answer_later<FilteredGroup>(
        answer,
        FilteredGroup{.group = std::move(group), .verdict = {.keep = keeps, .reason = "even"}});
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream({.staleness = {.groups_per_step = 3, .max_lag = 10},
                       .num_steps = 1,
                       .rules = world.rules,
                       .stop = &world.stop});
  const StepResult result = take_step(rollout);
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) EXPECT_EQ(group.ordinal % 2, 1);
}

/// Nobody answers, and the step is stopped: what was sampled is handed back, not judged.
TEST(RolloutAsks, AStepThatIsStoppedWaitsForNobody) {
  World world;
  std::atomic<int> asked{0};
  world.hooks.filter.emplace<AskFilterFn>() = [&](Group, const std::stop_token&,
                                                  const AnswerFn<FilteredGroup>&) {
    if (++asked == 3) world.stop = true;
  };
  const StepResult result = world.run();
  EXPECT_TRUE(result.groups.empty());
  EXPECT_GE(world.returned.size(), 3u);
  EXPECT_TRUE(world.dropped.empty());
}

}  // namespace
}  // namespace slime::rollout
