/// Samples that functions draw, in the place of the engine.

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "core/version_runs.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

/// Two tokens more, and whatever a function may change.
Sample two_more(Sample sample, Status status = Status::kCompleted) {
  for (const TokenId id : {7, 8}) {
    sample.tokens.push_back(id);
    sample.log_probs.push_back(-0.5F);
  }
  append_run(sample.versions, {3, 2});
  sample.status = status;
  sample.metadata["turns"] = 1;
  return sample;
}

GenerateFn answers(std::function<Expected<std::vector<Sample>>(const Sample&)> make) {
  return [make = std::move(make)](GenerateCall call, const std::stop_token&,
                                  const AnswerFn<std::vector<Sample>>& answer) {
    answer(make(call.sample));
  };
}

TEST(RolloutFunctions, DrawInThePlaceOfTheEngine) {
  World world;
  world.rules.sampling.temperature = 0.5;
  std::vector<std::jthread> threads;  // answers from others, as those of hosts are
  world.rules.generate = [&](GenerateCall call, const std::stop_token&,
                             const AnswerFn<std::vector<Sample>>& answer) {
    EXPECT_EQ(call.sample.status, Status::kPending);
    EXPECT_EQ(call.sample.tokens.size(), 2u);
    EXPECT_EQ(call.sampling.temperature, 0.5);
    EXPECT_EQ(call.sampling.max_new_tokens, 8);
    threads.emplace_back([answer, sample = call.sample] { answer(std::vector{two_more(sample)}); });
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) {
    ASSERT_EQ(group.samples.size(), 2u);
    for (const Sample& sample : group.samples) {
      EXPECT_EQ(sample.response_length(), 2);
      EXPECT_EQ(sample.reward, json::value(1.0));
      EXPECT_EQ(sample.metadata, (json::object{{"turns", 1}}));
    }
  }
  EXPECT_EQ(result.end.generated_tokens, 12);
  EXPECT_EQ(result.end.discarded_tokens, 0);
}

TEST(RolloutFunctions, TokensThatNoneOfTheirSamplesTrainsAreCounted) {
  World world;
  world.rules.generate = [](GenerateCall call, const std::stop_token&,
                            const AnswerFn<MadeSamples>& answer) {
    MadeSamples made({two_more(call.sample)});
    made.untrained_tokens = call.sample.index_in_group == 0 ? 5 : 0;
    answer(std::move(made));
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.end.generated_tokens, 12);
  EXPECT_EQ(result.end.lost_tokens, 15);
}

TEST(RolloutFunctions, PartsOfOneExecutionStandBesideOneAnotherInTheGroup) {
  World world;
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    std::vector<Sample> parts{two_more(sample)};
    if (sample.index_in_group == 0) parts.push_back(two_more(two_more(sample)));
    for (Sample& part : parts) part.rollout_id = sample.ordinal;
    return parts;
  });
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) {
    ASSERT_EQ(group.samples.size(), 3u);
    EXPECT_EQ(group.samples[0].ordinal, group.samples[1].ordinal);
    EXPECT_EQ(group.samples[0].response_length(), 2);
    EXPECT_EQ(group.samples[1].response_length(), 4);
    EXPECT_EQ(group.samples[1].reward, json::value(1.0)) << "each part is scored";
    EXPECT_EQ(group.samples[2].ordinal, group.samples[0].ordinal + 1);
  }
}

TEST(RolloutFunctions, AListIsScoredInOneCallAsFarAsItHasNoReward) {
  World world;
  world.hooks.scorer.rule.score = nullptr;
  world.function_scorer().ask = [](Sample sample, std::stop_token,
                                   std::function<void(Expected<Sample>)> answer) {
    sample.reward = "alone";
    answer(std::move(sample));
  };
  world.function_scorer().ask_parts = [](Group parts, std::stop_token,
                                         const AnswerFn<Group>& answer) {
    if (parts.ordinal == 1) return answer(failure("TypeError: no batch"));
    for (Sample& part : parts.samples) part.reward = static_cast<int64_t>(parts.samples.size());
    answer(std::move(parts));
  };
  world.rules.generate = [](GenerateCall call, const std::stop_token&,
                            const AnswerFn<MadeSamples>& answer) {
    if (call.sample.index_in_group == 1) return answer(std::vector{two_more(call.sample)});
    std::vector<Sample> parts(3, two_more(call.sample));
    for (Sample& part : parts) part.rollout_id = call.sample.ordinal;
    parts[1].reward = 7;
    answer(MadeSamples(std::move(parts), /*came_as_list=*/true));
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) {
    ASSERT_EQ(group.samples.size(), 4u);
    const json::value expected[] = {2, 7, 2, "alone"};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(group.samples[i].reward, expected[i]);
  }
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{1, "failed"}}));
}

TEST(RolloutFunctions, AFailureLeavesThePromptOutWithItsReason) {
  World world;
  std::string reason;
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    if (sample.ordinal == 3) return failure("ValueError: no such luck");
    return std::vector{two_more(sample)};
  });
  world.prompts.on_drop = [&](const Group& group, const std::string& why) {
    world.dropped.emplace_back(group.ordinal, why);
    reason = group.samples[1].failure;
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.end.num_failed_groups, 1);
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{1, "failed"}}));
  EXPECT_EQ(reason, "generate: ValueError: no such luck");
}

TEST(RolloutFunctions, ARewardOfTheirsIsKeptWhenItCanBeUsed) {
  World world;
  world.hooks.scorer.rule.score = nullptr;
  world.rules.reward_problem = [](const json::value& reward) -> std::optional<std::string> {
    if (reward.is_number()) return std::nullopt;
    return "it is not a number";
  };
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    Sample made = two_more(sample);
    made.reward = sample.group == 0 ? json::value("much") : json::value(4);
    return std::vector{made};
  });
  const StepResult result = world.run();
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{0, "failed"}}));
  for (const Group& group : result.groups) EXPECT_EQ(group.samples[0].reward, json::value(4));
}

/// Group 0 is sampled by functions that do not answer; two groups are begun for a step of one.
struct Slow {
  World world;
  std::mutex mutex;
  std::vector<std::stop_token> stops;
  std::vector<std::pair<Sample, AnswerFn<std::vector<Sample>>>> open;

  Slow() {
    world.config.groups_per_step = 1;
    world.config.groups_per_refill = 2;
    world.rules.generate = [this](GenerateCall call, std::stop_token stop,
                                  AnswerFn<std::vector<Sample>> answer) {
      if (call.sample.group != 0) return answer(std::vector{two_more(call.sample)});
      const std::lock_guard lock(mutex);
      stops.push_back(std::move(stop));
      open.emplace_back(std::move(call.sample), std::move(answer));
    };
  }
};

TEST(RolloutFunctions, GroupsAreJudgedAsTheyFinishAndTheOthersStopped) {
  Slow slow;
  const StepResult result = slow.world.run();
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].ordinal, 1);
  ASSERT_EQ(slow.stops.size(), 2u);
  EXPECT_TRUE(slow.stops[0].stop_requested());
  ASSERT_EQ(slow.world.returned.size(), 1u);
  EXPECT_EQ(slow.world.returned[0].ordinal, 0);
  EXPECT_EQ(slow.world.returned[0].samples[0].status, Status::kPending);
}

TEST(RolloutFunctions, APartialRolloutKeepsWhatTheyReturnWhenTheyAreToEnd) {
  Slow slow;
  slow.world.config.keeps_partial = true;
  std::vector<bool> told;
  slow.world.hooks.abort_functions = [&](bool aborts) {
    told.push_back(aborts);
    if (!aborts) return;
    for (const auto& [sample, answer] : slow.open)
      answer(std::vector{two_more(sample, Status::kAborted)});
  };
  const StepResult result = slow.world.run();
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
  ASSERT_EQ(slow.world.returned.size(), 1u);
  for (const Sample& sample : slow.world.returned[0].samples) {
    EXPECT_EQ(sample.status, Status::kAborted);
    EXPECT_EQ(sample.response_length(), 2);
    EXPECT_TRUE(sample.reward.is_null());
  }
  EXPECT_EQ(result.end.generated_tokens, 8);
  EXPECT_EQ(result.end.discarded_tokens, 0);
}

TEST(RolloutFunctions, WhoDoesNotReturnInTimeIsStopped) {
  Slow slow;
  slow.world.config.keeps_partial = true;
  slow.world.config.abort_patience = std::chrono::milliseconds(30);
  slow.world.hooks.abort_functions = [](bool) {};
  const StepResult result = slow.world.run();
  EXPECT_EQ(result.groups.size(), 1u);
  ASSERT_EQ(slow.stops.size(), 2u);
  EXPECT_TRUE(slow.stops[0].stop_requested());
  ASSERT_EQ(slow.world.returned.size(), 1u);
  EXPECT_EQ(slow.world.returned[0].samples[0].response_length(), 0);
}

TEST(RolloutFunctions, WhatIsHandedBackIsAsItWasBegun) {
  World world;
  world.config.groups_per_step = 1;
  world.config.groups_per_refill = 2;
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    return std::vector{two_more(sample), two_more(sample)};
  });
  world.run();
  ASSERT_EQ(world.returned.size(), 1u);
  ASSERT_EQ(world.returned[0].samples.size(), 2u);
  EXPECT_TRUE(world.returned[0].samples[0].metadata.empty());
  EXPECT_EQ(world.returned[0].samples[0].response_length(), 0);
}

TEST(RolloutFunctions, OneThatGivesUpUnaskedIsReplacedAndComesAgain) {
  World world;
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    return std::vector{two_more(sample, sample.group == 0 ? Status::kAborted : Status::kCompleted)};
  });
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.end.num_failed_groups, 1);
  ASSERT_FALSE(world.returned.empty());
  EXPECT_EQ(world.returned[0].ordinal, 0);
  EXPECT_EQ(world.returned[0].samples[0].response_length(), 0);
}

TEST(RolloutFunctions, AStreamIsSampledByThemToo) {
  World world;
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    std::vector<Sample> parts{two_more(sample)};
    if (sample.group == 1) parts.push_back(two_more(sample));
    return parts;
  });
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream({.staleness = {.groups_per_step = world.config.groups_per_step, .max_lag = 1},
                       .num_steps = 2,
                       .rules = world.rules,
                       .stop = &world.stop});
  const StepResult first = take_step(rollout);
  ASSERT_EQ(first.groups.size(), 3u);
  EXPECT_EQ(first.groups[1].samples.size(), 4u);
  rollout.release(1);
  EXPECT_EQ(take_step(rollout).groups.size(), 3u);
}

TEST(RolloutFunctions, AnEvaluationIsSampledByThemToo) {
  World world;
  world.rules.generate = answers([](const Sample& sample) -> Expected<std::vector<Sample>> {
    if (sample.ordinal == 1) return failure("not this one");
    return std::vector{two_more(sample)};
  });
  Rollout rollout(world.engine, world.config, world.hooks);
  const std::vector<Group> groups =
      rollout.evaluate({group_of(0, 2), group_of(1, 2)}, world.rules, world.stop);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].samples[0].reward, json::value(1.0));
  EXPECT_EQ(groups[0].samples[1].status, Status::kFailed);
  EXPECT_EQ(groups[0].samples[1].failure, "generate: not this one");
}

}  // namespace
}  // namespace slime::rollout
