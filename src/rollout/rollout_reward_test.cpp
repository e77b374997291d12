/// Rewards that fail, are late, wait for a thread, or that nobody waits for.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

TEST(Rollout, ATeacherIsAskedOfEachSampleThatTrainsBesidesItsReward) {
  World world;
  std::atomic<int> asked{0};
  world.hooks.scorer.teacher.emplace().ask = [&](const Sample& sample,
                                                 const std::stop_token&) -> Expected<json::value> {
    ++asked;
    if (sample.group == 1) return failure("no answer");
    const std::vector<double> scores(static_cast<std::size_t>(sample.response_length()), -2.0);
    return json::value(json::object{{"teacher_log_probs", json::value_from(scores)}});
  };
  world.hooks.scorer.rule.of_evaluations = [](const Sample&,
                                              const std::stop_token&) -> Expected<json::value> {
    return json::value(0.5);
  };
  const StepResult step = world.run();
  ASSERT_EQ(step.groups.size(), 3U);
  for (const Group& group : step.groups) {
    EXPECT_NE(group.ordinal, 1) << "its teacher gave no answer";
    for (const Sample& sample : group.samples) {
      EXPECT_EQ(sample.reward, json::value(1.0));
      EXPECT_EQ(sample.teacher_log_probs,
                std::vector<float>(static_cast<std::size_t>(sample.response_length()), -2.0F));
    }
  }
  ASSERT_EQ(world.dropped.size(), 1U);
  const int before = asked;
  Rollout rollout(world.engine, world.config, world.hooks);
  ResponseRules rules = world.rules;
  rules.is_evaluation = true;
  for (const Group& group : rollout.evaluate({group_of(0, 2)}, rules, world.stop))
    for (const Sample& sample : group.samples) EXPECT_EQ(sample.reward, json::value(0.5));
  EXPECT_EQ(asked, before) << "nobody learns from an evaluation";
}

TEST(Rollout, AGroupWhoseRewardFailsIsDroppedNotScoredZero) {
  World world;
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    if (sample.group == 1) return failure("the judge is asleep");
    return json::value(1.0);
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.end.num_failed_groups, 1);
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{1, "failed"}}));
}

TEST(Rollout, ARewardThatCannotBeUsedFailsItsSampleWithTheReason) {
  World world;
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    return sample.group == 1 ? json::value("x") : json::value(1.0);
  };
  world.rules.reward_problem = [](const json::value& reward) -> std::optional<std::string> {
    if (reward.is_number()) return std::nullopt;
    return json_text(reward) + " is not a number";
  };
  std::string failure;
  world.prompts.on_drop = [&](const Group& group, const std::string&) {
    failure = group.samples.front().failure;
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.end.num_failed_groups, 1);
  EXPECT_EQ(failure, "reward: \"x\" is not a number");
}

TEST(Rollout, TooManyFailuresEndTheRunWithTheReason) {
  World world;
  world.config.max_failed_groups = 5;
  world.hooks.scorer.rule.score = [](const Sample&,
                                     const std::stop_token&) -> Expected<json::value> {
    return failure("the judge is asleep");
  };
  try {
    world.run();
    FAIL() << "went on for ever";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("the judge is asleep"), std::string::npos);
  }
}

TEST(Rollout, ASlowRewardIsAFailure) {
  World world;
  world.config.reward_timeout = std::chrono::milliseconds(20);
  world.config.reward_threads = 2;
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    if (sample.ordinal == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return json::value(1.0);
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 3u);
  ASSERT_FALSE(world.dropped.empty());
  EXPECT_EQ(world.dropped.front(), (std::pair<int64_t, std::string>{0, "failed"}));
}

TEST(Rollout, ARewardThatWaitsForAThreadHasItsWholeTimeOnceItHasOne) {
  World world;
  world.config = {.groups_per_step = 1,
                  .groups_per_refill = 2,
                  .max_concurrent_samples = 1,
                  .reward_timeout = std::chrono::milliseconds(100),
                  .reward_threads = 1};
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    // A local rule that does not look at its stop token keeps the only thread.
    if (sample.ordinal == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return json::value(1.0);
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.end.num_failed_groups, 1) << "the one whose rule took too long";
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].ordinal, 1);
}

TEST(Rollout, ThreadsThatAreAllKeptByRewardsThatDoNotEndEndTheRunWithTheReason) {
  World world;
  world.config.reward_timeout = std::chrono::milliseconds(10);
  world.config.max_failed_groups = 2;
  std::promise<void> may_return;
  std::shared_future<void> returns = may_return.get_future().share();
  world.hooks.scorer.rule.score = [&](const Sample&,
                                      const std::stop_token&) -> Expected<json::value> {
    returns.wait();
    return json::value(1.0);
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  try {
    world.run(rollout);
    ADD_FAILURE() << "a reward came back";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no reward thread became free"), std::string::npos)
        << error.what();
  }
  may_return.set_value();
}

TEST(Rollout, AnAbandonedRewardDoesNotFailTheGroupsOfTheNextStep) {
  World world;
  world.config = {.groups_per_step = 1,
                  .groups_per_refill = 1,
                  .reward_timeout = std::chrono::milliseconds(300),
                  .reward_threads = 1};
  std::atomic<bool> is_first{true};
  world.hooks.scorer.rule.score = [&](const Sample&,
                                      const std::stop_token&) -> Expected<json::value> {
    if (is_first.exchange(false)) {
      world.stop = true;  // the step ends, the rule goes on
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
    }
    return json::value(1.0);
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  EXPECT_TRUE(world.run(rollout, 0).groups.empty());
  world.stop = false;
  const StepResult next = world.run(rollout, 1);
  EXPECT_EQ(next.groups.size(), 1u);
  EXPECT_EQ(next.end.num_failed_groups, 0);
}

TEST(Rollout, SurplusRewardsAreToldToStopAndNobodyWaitsForThem) {
  World world;
  world.config = {.groups_per_step = 1,
                  .groups_per_refill = 3,
                  .keeps_partial = true,
                  .reward_timeout = std::chrono::seconds(100),
                  .reward_threads = 8};
  std::promise<void> may_return;
  std::shared_future<void> returns = may_return.get_future().share();
  std::atomic<int> num_told{0};
  std::atomic<int> num_begun{0};
  world.hooks.scorer.rule.score = [&](const Sample& sample,
                                      const std::stop_token& stop) -> Expected<json::value> {
    ++num_begun;
    while (sample.group == 0 && num_begun < 6) std::this_thread::yield();
    if (sample.group == 1) {  // a judge that can be told
      while (!stop.stop_requested()) std::this_thread::yield();
      ++num_told;
    }
    if (sample.group == 2) returns.wait();  // a rule that cannot
    return json::value(1.0);
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  const StepResult result = world.run(rollout);
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].ordinal, 0);
  ASSERT_EQ(world.returned.size(), 2u);
  for (const Group& group : world.returned) {
    EXPECT_EQ(group.samples[0].status, Status::kCompleted);
    EXPECT_TRUE(group.samples[0].reward.is_null()) << "to be asked for when its turn has come";
  }
  while (num_told < 2) std::this_thread::yield();
  may_return.set_value();
}

TEST(Rollout, AScoreFromElsewhereMayChangeItsSample) {
  World world;
  std::string reason;
  world.prompts.on_drop = [&](const Group& group, const std::string&) {
    reason = group.samples.front().failure;
  };
  world.function_scorer().ask = [](Sample sample, std::stop_token,
                                   std::function<void(Expected<Sample>)> answer) {
    std::thread([sample = std::move(sample), answer = std::move(answer)]() mutable {
      if (sample.group == 1) return answer(failure("nobody is there"));
      sample.reward = 2.0;
      sample.metadata["seen"] = true;
      answer(std::move(sample));
    }).detach();
  };
  const StepResult result = world.run();
  EXPECT_EQ(reason, "reward: nobody is there");
  EXPECT_EQ(result.end.num_failed_groups, 1);
  for (const Group& group : result.groups) {
    for (const Sample& sample : group.samples) {
      EXPECT_EQ(sample.reward, json::value(2.0));
      EXPECT_TRUE(sample.metadata.contains("seen"));
    }
  }
}

TEST(Rollout, AScoreFromElsewhereIsNotWaitedForWhenTheRolloutEnds) {
  World world;
  std::promise<void> asked;
  std::once_flag first;
  std::stop_token stop;
  std::function<void(Expected<Sample>)> late;
  world.function_scorer().ask = [&](Sample, std::stop_token of_call,
                                    std::function<void(Expected<Sample>)> answer) {
    std::call_once(first, [&] {
      stop = std::move(of_call);
      late = std::move(answer);
      asked.set_value();
    });
  };
  {
    Rollout rollout(world.engine, world.config, world.hooks);
    rollout.open_step(world.order());
    asked.get_future().wait();
  }
  EXPECT_TRUE(stop.stop_requested());
  late(failure("too late"));
}

}  // namespace
}  // namespace slime::rollout
