/// A step: groups taken, kept, dropped and handed back, and the thread that it lives on.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <thread>

#include "core/error.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

TEST(Rollout, ReturnsScoredGroupsInOrder) {
  World world;
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (int64_t g = 0; g < 3; ++g) {
    EXPECT_EQ(result.groups[g].ordinal, g);
    for (const Sample& sample : result.groups[g].samples) {
      EXPECT_EQ(sample.status, Status::kCompleted);
      EXPECT_EQ(sample.response_length(), 3);
      EXPECT_EQ(sample.log_probs.size(), 3u);
      EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{7, 3}}));
      EXPECT_EQ(sample.reward, json::value(1.0));
      EXPECT_EQ(sample.response, "3");
    }
  }
  EXPECT_EQ(result.end.generated_tokens, 18);
}

TEST(Rollout, DroppedGroupsAreReplacedAndCounted) {
  World world;
  world.hooks.filter.emplace<FilterRule>() = [](const Group& group) {
    return FilterVerdict{.keep = group.ordinal % 2 == 0, .reason = "odd"};
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) EXPECT_EQ(group.ordinal % 2, 0);
  EXPECT_EQ(result.end.drops.at("odd"), static_cast<int64_t>(world.dropped.size()));
  // Each prompt that was taken has one outcome: returned, dropped or handed back.
  EXPECT_EQ(result.groups.size() + world.dropped.size() + world.returned.size(),
            static_cast<std::size_t>(world.next));
}

TEST(Rollout, WhatIsStillInFlightIsHandedBack) {
  World world;
  world.engine.never = {101};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  world.config.keeps_partial = true;
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].ordinal, 1);
  EXPECT_EQ(world.returned[0].samples[0].status, Status::kAborted);
  EXPECT_EQ(world.returned[0].samples[0].response_length(), 3)
      << "as many tokens as the others had sampled when the last of them finished";
  EXPECT_EQ(world.returned[0].samples[0].response, "3");
}

TEST(Rollout, WithoutPartialRolloutAHandedBackPromptIsUntouched) {
  World world;
  world.engine.never = {101};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  world.run();
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].samples[0].status, Status::kPending);
  EXPECT_EQ(world.returned[0].samples[0].response_length(), 0);
  EXPECT_TRUE(world.returned[0].samples[0].reward.is_null());
}

TEST(Rollout, AStopRequestEndsItWithWhatIsThere) {
  World world;
  world.engine.never = {101};
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    world.stop = true;
  });
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 2u);
  EXPECT_EQ(world.returned.size(), 1u);
}

TEST(Rollout, ASampleBeyondALimitThatWasLoweredIsTruncatedAndTheStepGoesOn) {
  World world;
  world.config.keeps_partial = true;
  world.config.max_concurrent_samples = 1;
  world.rules.sampling.max_new_tokens = 4;
  world.prompts.on_take = [](int64_t) {
    std::vector<Group> groups{group_of(0, 2), group_of(1, 2), group_of(2, 2)};
    Sample& longer = groups[0].samples[0];
    longer.tokens.insert(longer.tokens.end(), 6, 9);
    longer.log_probs.assign(6, -1.0F);
    longer.versions = {{6, 6}};
    longer.status = Status::kAborted;
    return groups;
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  const Sample& sample = result.groups[0].samples[0];
  EXPECT_EQ(sample.status, Status::kTruncated);
  EXPECT_EQ(sample.response_length(), 6);
  EXPECT_EQ(sample.response, "6");
  EXPECT_EQ(sample.reward, json::value(1.0));
  EXPECT_EQ(world.engine.num_submitted_, 5);
}

/// A group of one prompt whose first sample an earlier run has begun: two tokens, and their top-p
/// ids if it recorded them; its second sample is complete.
Group begun_group(bool has_top_p_ids) {
  Group group = group_of(0, 2);
  for (Sample& sample : group.samples) {
    sample.tokens.insert(sample.tokens.end(), {9, 8});
    sample.log_probs = {-1.0F, -1.0F};
    sample.versions = {{6, 2}};
    if (has_top_p_ids) {
      sample.top_p_ids = {9, 10, 8};
      sample.top_p_offsets = {0, 2, 3};
    }
    sample.status = Status::kAborted;
  }
  group.samples[1].status = Status::kCompleted;
  group.samples[1].reward = 0.5;
  return group;
}

TEST(Rollout, WithoutPartialRolloutsAGroupThatAnotherRunHasBegunIsSampledAnew) {
  World world;
  world.config.groups_per_step = world.config.groups_per_refill = 1;
  world.engine.version = 9;
  int64_t num_discarded = 0;
  world.prompts.on_discard = [&num_discarded](int64_t, int64_t tokens) { num_discarded += tokens; };
  world.prompts.on_take = [](int64_t) { return std::vector<Group>{begun_group(false)}; };
  const StepResult result = world.run();
  EXPECT_EQ(num_discarded, 4);
  for (const Sample& sample : result.groups.at(0).samples) {
    ASSERT_EQ(sample.versions.size(), 1);
    EXPECT_EQ(sample.versions[0].version, 9);
  }
}

TEST(Rollout, ASampleThatGoesOnKeepsTheTopPIdsOfItsEarlierTokens) {
  World world;
  world.config.keeps_partial = true;
  world.rules.keeps_top_p_ids = true;
  world.config.groups_per_step = world.config.groups_per_refill = 1;
  world.prompts.on_take = [](int64_t) { return std::vector<Group>{begun_group(true)}; };
  const StepResult result = world.run();
  const Sample& sample = result.groups.at(0).samples[0];
  EXPECT_EQ(sample.response_length(), 5);
  EXPECT_EQ(sample.tokens, (std::vector<TokenId>{100, 5, 9, 8, 100, 100, 2}));
  EXPECT_EQ(sample.top_p_ids, (std::vector<TokenId>{9, 10, 8, 100, 77, 100, 77, 2, 77}));
  EXPECT_EQ(sample.top_p_offsets, (std::vector<int64_t>{0, 2, 3, 5, 7, 9}));
  EXPECT_EQ(result.groups[0].samples[1].top_p_offsets, (std::vector<int64_t>{0, 2, 3}));
}

TEST(Rollout, ResponsesWithAndWithoutTopPIdsAreNotMixedButSampledAnew) {
  for (const bool keeps : {false, true}) {
    World world;  // as after a resume with another --rollout-top-p
    world.rules.keeps_top_p_ids = keeps;
    world.config.groups_per_step = world.config.groups_per_refill = 1;
    world.prompts.on_take = [&](int64_t) { return std::vector<Group>{begun_group(!keeps)}; };
    int64_t discarded = 0;
    world.prompts.on_discard = [&](int64_t, int64_t num_tokens) { discarded += num_tokens; };
    const StepResult result = world.run();
    EXPECT_EQ(discarded, 4);
    for (const Sample& sample : result.groups.at(0).samples) {
      EXPECT_EQ(sample.tokens, (std::vector<TokenId>{100, 5, 100, 100, 2})) << keeps;
      EXPECT_EQ(sample.log_probs.size(), 3U);
      EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{7, 3}}));
      EXPECT_EQ(sample.top_p_offsets.size(), keeps ? 4U : 0U);
      EXPECT_EQ(sample.reward, json::value(1.0));
      EXPECT_EQ(sample.status, Status::kCompleted);
    }
  }
}

TEST(Rollout, StepsFollowOneAnotherOnOneThread) {
  World world;
  world.engine.never = {101};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  world.config.keeps_partial = true;
  std::set<std::thread::id> threads;
  std::vector<std::string> rids;
  world.engine.on_admitted = [&](const engine::GenerateRequest& request) {
    rids.push_back(request.rid);
  };
  world.prompts.on_take = [&](int64_t count) {
    threads.insert(std::this_thread::get_id());
    std::vector<Group> groups = std::exchange(world.returned, {});
    while (static_cast<int64_t>(groups.size()) < count) groups.push_back(group_of(world.next++, 2));
    return groups;
  };
  {
    Rollout rollout(world.engine, world.config, world.hooks);
    const StepResult first = world.run(rollout, 0);
    ASSERT_EQ(first.groups.size(), 3u);
    EXPECT_EQ(first.end.step, 0);
    EXPECT_EQ(first.end.version, 7);
    const int64_t num_submitted = world.engine.num_submitted_;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(world.engine.num_submitted_, num_submitted) << "nothing is sampled between steps";
    world.engine.version = 8;
    world.engine.never.clear();
    const StepResult second = world.run(rollout, 1);
    EXPECT_EQ(second.end.step, 1);
    EXPECT_EQ(second.end.version, 8);
    ASSERT_EQ(second.groups.size(), 3u);
    EXPECT_EQ(second.groups[0].ordinal, 1) << "the one that was handed back";
    EXPECT_EQ(second.groups[0].samples[0].versions, (std::vector<VersionRun>{{7, 3}, {8, 3}}));
  }
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
  const auto sent = [&](const char* rid) { return std::ranges::count(rids, rid); };
  EXPECT_EQ(sent("rollout-2.0"), 1) << "first attempt of sample 2";
  EXPECT_EQ(sent("rollout-2.1"), 1) << "it goes on after it was handed back";
  EXPECT_EQ(sent("rollout-0.1"), 0);
}

TEST(Rollout, EndsPromptlyWithRequestsInFlightAndARewardThatHangs) {
  World world;
  world.engine.never = {101};
  world.config.max_concurrent_samples = 64;
  world.config.reward_timeout = std::chrono::seconds(100);
  world.config.reward_threads = 4;
  std::atomic<int> num_hanging{0};
  world.hooks.scorer.rule.score = [&](const Sample&,
                                      const std::stop_token& stop) -> Expected<json::value> {
    ++num_hanging;
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return json::value(1.0);
  };
  auto rollout = std::make_unique<Rollout>(world.engine, world.config, world.hooks);
  rollout->open_step(world.order());
  while (num_hanging < 4) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  rollout.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(world.returned.empty()) << "nobody is told any more";
}

TEST(Rollout, EndsWithAStepThatNobodyTook) {
  World world;
  world.config.max_waiting_groups = 1;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_step(world.order());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(Rollout, WhatHooksThrowReachesTheLoopWithItsTypeAndTheNextStepWorks) {
  World world;
  world.prompts.on_take = [&, take = world.prompts.on_take](int64_t count) {
    if (world.next == 0) {
      world.next = 1;
      throw ConfigError("the data file is gone");
    }
    return take(count);
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  EXPECT_THROW(world.run(rollout), ConfigError);
  EXPECT_EQ(world.run(rollout).groups.size(), 3u);
}

}  // namespace
}  // namespace slime::rollout
