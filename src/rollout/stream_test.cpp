#include "rollout/stream.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <set>

#include "core/sampled_tokens.h"
#include "core/version_runs.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

StreamOrder stream_of(const World& world, int64_t max_lag, int64_t num_steps) {
  return {.staleness = {.groups_per_step = world.config.groups_per_step, .max_lag = max_lag},
          .num_steps = num_steps,
          .rules = world.rules,
          .stop = &world.stop};
}

/// Trains `num_steps` steps: each takes its groups and publishes a new version.
std::vector<StepResult> train(World& world, Rollout& rollout, int64_t num_steps) {
  std::vector<StepResult> steps;
  world.engine.version = 0;
  for (int64_t step = 0; step < num_steps; ++step) {
    steps.push_back(take_step(rollout));
    world.engine.version = step + 1;
    rollout.release(step + 1);
  }
  return steps;
}

TEST(Staleness, AGroupMayBeBegunIfItIsTrainedInTime) {
  const Staleness on_policy{.groups_per_step = 4};
  EXPECT_TRUE(on_policy.may_begin(3, 0));
  EXPECT_FALSE(on_policy.may_begin(4, 0));
  EXPECT_TRUE(on_policy.may_begin(7, 1));
  const Staleness one_behind{.groups_per_step = 4, .max_lag = 1};
  EXPECT_TRUE(one_behind.may_begin(7, 0));
  EXPECT_FALSE(one_behind.may_begin(8, 0));
  // An update after every second step: versions last twice as long.
  const Staleness seldom{.groups_per_step = 4, .steps_per_update = 2, .max_lag = 1};
  EXPECT_TRUE(seldom.may_begin(15, 0));
  EXPECT_FALSE(seldom.may_begin(16, 0));
}

TEST(Staleness, CountsFromTheStepThatAProcessBeginsWith) {
  // Step 3 begins in the middle of an interval, with weights that were published anew.
  const Staleness resumed{.groups_per_step = 2,
                          .steps_per_update = 2,
                          .max_lag = 1,
                          .first_step = 3,
                          .first_version = 7};
  EXPECT_EQ(resumed.version_at(3), 7);
  EXPECT_EQ(resumed.version_at(4), 8);
  EXPECT_EQ(resumed.version_at(6), 9);
  EXPECT_EQ(resumed.last_step_for(7), 5);
  EXPECT_TRUE(resumed.may_begin(5, 7));
  EXPECT_FALSE(resumed.may_begin(6, 7));
}

TEST(Stream, GroupsAreTrainedInTheOrderInWhichTheyWereBegun) {
  World world;
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    return 1 + static_cast<int64_t>(request.sampling.sampling_seed.value() % 7);
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 2, 6));
  const std::vector<StepResult> steps = train(world, rollout, 6);
  for (int64_t step = 0; step < 6; ++step) {
    const StepResult& result = steps[static_cast<std::size_t>(step)];
    EXPECT_EQ(result.end.step, step);
    ASSERT_EQ(result.groups.size(), 3u);
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(result.groups[static_cast<std::size_t>(i)].ordinal, 3 * step + i);
  }
  EXPECT_EQ(world.next, 18);  // no prompt more than the run needs
}

class StreamBound : public testing::TestWithParam<std::tuple<int64_t, ConsumptionOrder>> {};

TEST_P(StreamBound, NoTokenIsOlderThanTheBoundWhenItIsTrained) {
  const auto [max_lag, order] = GetParam();
  World world;
  world.rules.sampling.max_new_tokens = 60;
  world.config.groups_per_step = 4;
  world.config.max_concurrent_samples = 64;
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    const uint64_t seed = request.sampling.sampling_seed.value();
    return seed % 9 == 0 ? int64_t{50} : static_cast<int64_t>(1 + seed % 5);
  };
  world.hooks.filter.emplace<FilterRule>() = [](const Group& group) {
    return FilterVerdict{.keep = group.ordinal % 5 != 2, .reason = "odd"};
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  StreamOrder stream = stream_of(world, max_lag, 30);
  stream.order = order;
  rollout.open_stream(std::move(stream));
  const std::vector<StepResult> steps = train(world, rollout, 30);
  std::set<int64_t> trained;
  for (int64_t step = 0; step < 30; ++step) {
    for (const Group& group : steps[static_cast<std::size_t>(step)].groups) {
      EXPECT_TRUE(trained.insert(group.ordinal).second);
      EXPECT_LE(step - *group.begun_with, max_lag);
      for (const Sample& sample : group.samples) {
        EXPECT_EQ(num_tokens(sample.versions), sample.response_length());
        EXPECT_LE(step - sample.versions.front().version, max_lag);
        EXPECT_GE(sample.versions.front().version, *group.begun_with);
      }
    }
  }
  EXPECT_EQ(trained.size(), 120u);
  EXPECT_EQ(static_cast<int64_t>(trained.size() + world.dropped.size()), world.next);
}

INSTANTIATE_TEST_SUITE_P(Lags, StreamBound,
                         testing::Combine(testing::Values(0, 1, 2, 5),
                                          testing::Values(ConsumptionOrder::kDispatch,
                                                          ConsumptionOrder::kFinish)));

TEST(Stream, OnPolicyNothingIsBegunBeforeTheUpdate) {
  World world;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 0, 4));
  for (int64_t step = 0; step < 4; ++step) {
    const StepResult result = take_step(rollout);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(world.engine.num_submitted_, 6 * (step + 1));
    world.engine.version = step + 1;
    rollout.release(step + 1);
  }
}

TEST(Stream, AnInterruptionLosesNoToken) {
  World world;
  constexpr int64_t kEndless = 100'000'000;
  constexpr TokenId kFirstAhead = 103;  // of a group that is begun beside the first step's
  world.rules.sampling.max_new_tokens = 2 * kEndless;
  world.config.max_concurrent_samples = 32;
  std::promise<void> ahead;
  bool is_ahead = false;  // the engine's thread
  world.engine.on_sampled = [&](const engine::GenerateRequest& request) {
    if (request.input_ids.front() == kFirstAhead && !std::exchange(is_ahead, true))
      ahead.set_value();
  };
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    // It goes on until it is interrupted.
    if (request.input_ids.front() == kFirstAhead && request.input_ids.size() == 2) return kEndless;
    const auto whole = static_cast<int64_t>(100 + request.sampling.sampling_seed.value() % 250);
    return std::max<int64_t>(1, whole - (static_cast<int64_t>(request.input_ids.size()) - 2));
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 8));
  world.engine.version = 0;
  int64_t num_mixed = 0;
  for (int64_t step = 0; step < 8; ++step) {
    for (const Group& group : take_step(rollout).groups) {
      for (const Sample& sample : group.samples) {
        EXPECT_EQ(sample.status, Status::kCompleted);
        EXPECT_GE(sample.response_length(), 100);
        EXPECT_EQ(num_tokens(sample.versions), sample.response_length());
        num_mixed += sample.versions.size() > 1 ? 1 : 0;
      }
    }
    if (step == 0) ahead.get_future().wait();
    rollout.hold(/*interrupts=*/true);
    const int64_t submitted = world.engine.num_submitted_;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(world.engine.num_submitted_, submitted);
    world.engine.version = step + 1;
    rollout.release(step + 1);
  }
  EXPECT_GT(num_mixed, 0);
}

TEST(Stream, ADrainLetsWhatWasBegunEndWithItsWeights) {
  World world;
  world.rules.sampling.max_new_tokens = 400;
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    return static_cast<int64_t>(20 + request.sampling.sampling_seed.value() % 50);
  };
  world.engine.version = 0;  // before anything is sampled
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 6));
  for (int64_t step = 0; step < 6; ++step) {
    for (const Group& group : take_step(rollout).groups) {
      for (const Sample& sample : group.samples) EXPECT_EQ(sample.versions.size(), 1u);
    }
    rollout.hold(/*interrupts=*/false);
    world.engine.version = step + 1;
    rollout.release(step + 1);
  }
}

TEST(Stream, ALeaseShowsEveryGroupThatIsNotFinalOnce) {
  World world;
  world.give_returned_first();
  world.rules.sampling.max_new_tokens = 1000;
  world.engine.never = {103, 104};
  world.config.max_concurrent_samples = 64;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 3, 10));
  const StepResult first = take_step(rollout);
  ASSERT_EQ(first.groups.size(), 3u);  // 0, 1, 2
  std::map<int64_t, int64_t> seen;
  int64_t sampled = 0;
  int64_t accounted = 0;
  for (const Group& group : first.groups) accounted += num_sampled_tokens(group);
  {
    const Rollout::StateLock lock(rollout);
    const Snapshot now = lock.snapshot();
    for (const Group& group : now.open_groups) {
      ++seen[group.ordinal];
      accounted += num_sampled_tokens(group);
      EXPECT_TRUE(group.begun_with.has_value());
      for (const Sample& sample : group.samples) {
        EXPECT_EQ(sample.log_probs.size(), static_cast<std::size_t>(sample.response_length()));
        sampled += group.ordinal == 3 ? sample.response_length() : 0;
      }
    }
    EXPECT_EQ(now.generated_tokens, accounted);
  }
  EXPECT_EQ(seen.size(), 9u);  // 3 .. 11, begun with version 0 for steps 1, 2 and 3
  for (const auto& [ordinal, count] : seen) EXPECT_EQ(count, 1) << ordinal;
  EXPECT_TRUE(seen.contains(3));
  EXPECT_GE(sampled, 0);
}

TEST(Stream, GroupsThatWereTooOldAreSampledAgainOrLeftOut) {
  for (const StalePolicy policy : {StalePolicy::kRetry, StalePolicy::kDrop}) {
    World world;
    world.give_returned_first();
    world.rules.sampling.max_new_tokens = 100'000;
    world.config.max_concurrent_samples = 64;
    world.engine.never = {101};
    int64_t told = 0;
    world.prompts.on_discard = [&told](int64_t, int64_t num_tokens) { told += num_tokens; };
    Rollout rollout(world.engine, world.config, world.hooks);
    StreamOrder order = stream_of(world, 1, 8);
    order.order = ConsumptionOrder::kFinish;
    order.staleness.policy = policy;
    rollout.open_stream(std::move(order));
    const std::vector<StepResult> steps = train(world, rollout, 8);
    int64_t retried = 0;
    int64_t discarded = 0, counted = 0;
    for (const StepResult& step : steps) {
      EXPECT_EQ(step.groups.size(), 3u);
      retried += step.end.num_retried_groups;
      discarded += step.end.discarded_tokens;
      counted += step.end.num_dropped_samples;
    }
    // It never ends, so it is given up sooner or later; the others are trained, unless they were the
    // last of a batch by chance.
    std::set<int64_t> dropped;
    for (const auto& [ordinal, reason] : world.dropped) {
      EXPECT_EQ(reason, "stale");
      EXPECT_TRUE(dropped.insert(ordinal).second);
    }
    EXPECT_TRUE(dropped.contains(1));
    EXPECT_EQ(retried > 0, policy == StalePolicy::kRetry);
    EXPECT_EQ(counted, 2 * (retried + std::ssize(world.dropped))) << "each group has two samples";
    EXPECT_EQ(told, discarded);
  }
}

TEST(Stream, EndsWithTheDataAndSaysSo) {
  World world;
  world.prompts.on_take = [&world](int64_t) {
    std::vector<Group> groups;
    if (world.next < 7) groups.push_back(group_of(world.next++, 2));
    return groups;
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 10));
  std::vector<StepResult> steps = train(world, rollout, 3);
  EXPECT_EQ(steps[2].groups.size(), 1u);
  EXPECT_TRUE(steps[2].end.is_last);
}

TEST(Stream, BehindTheEndOfTheDataComeStepsWithoutGroups) {
  World world;
  world.prompts.on_take = [&world](int64_t) {
    std::vector<Group> groups;
    if (world.next < 3) groups.push_back(group_of(world.next++, 2));
    return groups;
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 10));
  train(world, rollout, 2);
  const StepResult behind = take_step(rollout);
  EXPECT_TRUE(behind.groups.empty());
  EXPECT_TRUE(behind.end.is_last);
}

TEST(Stream, WhatTheEngineGaveUpIsBegunAgainWhenNothingElseIsLeftToWaitFor) {
  World world;
  world.give_returned_first();
  world.engine.refused = {101};
  Rollout rollout(world.engine, world.config, world.hooks);
  std::jthread mender([&world] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    world.engine.accepts_all = true;
  });
  rollout.open_stream(stream_of(world, 0, 2));  // on policy: nothing may be begun in its place
  for (const StepResult& step : train(world, rollout, 2)) EXPECT_EQ(step.groups.size(), 3u);
}

TEST(Stream, ALastUpdateThatComesTwiceIsCountedOnce) {
  World world;
  world.engine.ends_twice = true;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 4));
  for (const StepResult& step : train(world, rollout, 4)) {
    ASSERT_EQ(step.groups.size(), 3u);
    for (const Group& group : step.groups) {
      for (const Sample& sample : group.samples) EXPECT_EQ(sample.response_length(), 3);
    }
  }
}

TEST(Stream, AStopFlagHandsEverythingBack) {
  World world;
  world.engine.never = {100, 101, 102};
  world.rules.sampling.max_new_tokens = 1'000'000;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 10));
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    world.stop = true;
  });
  const StepResult result = take_step(rollout);
  EXPECT_TRUE(result.end.is_last);
  EXPECT_TRUE(result.groups.empty());
  EXPECT_EQ(world.returned.size(), 6u);
}

TEST(Stream, AFailureOfTheEngineIsThrownWhereTheLoopTakes) {
  World world;
  world.engine.failure = engine::FinishReason::Cause::kEngineFailed;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(stream_of(world, 1, 10));
  EXPECT_THROW(take_step(rollout), std::runtime_error);
}

TEST(Stream, AGroupThatAnotherModeBeganIsAsOldAsItsTokens) {
  World world;
  world.give_returned_first();
  Group begun = group_of(50, 2);
  begun.samples[0].tokens.push_back(1);
  begun.samples[0].log_probs.push_back(-1);
  begun.samples[0].versions = {{3, 1}};
  begun.samples[0].status = Status::kAborted;
  world.returned.push_back(begun);
  StreamOrder order = stream_of(world, 0, 2);
  order.staleness.first_version = 5;
  world.engine.version = 5;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(order);
  for (WeightVersion version = 5; version < 7; ++version) {
    const StepResult step = take_step(rollout);
    for (const Group& group : step.groups) {
      for (const Sample& sample : group.samples) {
        for (const VersionRun& run : sample.versions) EXPECT_EQ(run.version, version);
      }
    }
    world.engine.version = version + 1;
    rollout.release(version + 1);
  }
}

TEST(Stream, AGroupThatIsSampledAnewIsThereThoughTheDataHasEnded) {
  World world;
  world.config.groups_per_step = 4;  // one more than there are
  Group too_old = group_of(0, 2);
  too_old.begun_with = 3;
  world.returned.push_back(too_old);
  for (int64_t ordinal = 1; ordinal < 3; ++ordinal) world.returned.push_back(group_of(ordinal, 2));
  world.prompts.on_take = [&world](int64_t) {
    std::vector<Group> groups;
    if (!world.returned.empty()) {
      groups.push_back(std::move(world.returned.front()));
      world.returned.erase(world.returned.begin());
    }
    return groups;
  };
  StreamOrder order = stream_of(world, 0, 1);
  order.staleness.first_version = 5;
  world.engine.version = 5;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_stream(order);
  EXPECT_EQ(take_step(rollout).groups.size(), 3);
}

/// --restart-mode: a group with one sample that has ended and one that has not.
TEST(Stream, AGroupWithASampleThatHasNotEndedGoesOnOrIsSampledAnew) {
  for (const bool redraws : {false, true}) {
    World world;
    world.config.groups_per_step = 1;
    world.config.redraws_unended_groups = redraws;
    Group begun = group_of(0, 2);
    begun.begun_with = 5;
    for (Sample& sample : begun.samples) {
      sample.tokens.push_back(7);  // no token that this engine draws
      sample.log_probs.push_back(-0.5F);
      sample.loss_mask.push_back(1);
      sample.versions = {{5, 1}};
    }
    begun.samples[0].status = Status::kTruncated;
    begun.samples[1].status = Status::kAborted;
    std::map<int64_t, int64_t> discarded;
    world.prompts.on_discard = [&discarded](int64_t ordinal, int64_t num_tokens) {
      discarded[ordinal] += num_tokens;
    };
    world.prompts.on_take = [&begun](int64_t) {
      std::vector<Group> groups;
      if (!begun.samples.empty()) groups.push_back(std::exchange(begun, {}));
      return groups;
    };
    StreamOrder order = stream_of(world, 0, 1);
    order.staleness.first_version = 5;
    world.engine.version = 5;
    Rollout rollout(world.engine, world.config, world.hooks);
    rollout.open_stream(order);
    const StepResult step = take_step(rollout);
    ASSERT_EQ(step.groups.size(), 1);
    for (const Sample& sample : step.groups[0].samples) {
      const TokenId first = sample.tokens[static_cast<std::size_t>(sample.prompt_length)];
      EXPECT_EQ(first == 7, !redraws) << sample.index_in_group;
    }
    EXPECT_EQ(discarded[0], redraws ? 2 : 0) << "the ledger knows what was thrown away";
  }
}

}  // namespace
}  // namespace slime::rollout
