/// A step is a function of tokens and rewards, not of time.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "core/sampled_tokens.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

/// A word for everything that a repeated run has to repeat.
std::string trace(const Group& group) {
  std::string text = std::to_string(group.ordinal) + ":";
  for (const Sample& sample : group.samples) {
    text += std::string(to_string(sample.status)).substr(0, 1) + sample.response;
    for (const VersionRun& run : sample.versions)
      text += "," + std::to_string(run.version) + "x" + std::to_string(run.num_tokens);
    text += " ";
  }
  return text;
}

/// Four steps with partial rollout, over-sampling, a filter, failing rewards and rewards on four

/// threads that take as long as chance has it.
std::vector<std::string> trace_of_a_run(int64_t num_slots, bool refills_at_once) {
  World world;
  world.config = {.groups_per_step = 3,
                  .groups_per_refill = 7,
                  .max_concurrent_samples = 9,
                  .num_slots = num_slots,
                  .keeps_partial = true,
                  .refills_at_once = refills_at_once,
                  .reward_threads = 4};
  world.rules.sampling.max_new_tokens = 40;
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    // A length of its own for every sample, whatever was sampled of it before.
    const auto whole = static_cast<int64_t>(1 + request.sampling.sampling_seed.value() % 23);
    return std::max<int64_t>(1, whole - (static_cast<int64_t>(request.input_ids.size()) - 2));
  };
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
    thread_local std::mt19937 chance(std::random_device{}());
    std::this_thread::sleep_for(std::chrono::microseconds(chance() % 2000));
    if (sample.ordinal % 13 == 5) return failure("odd sample");
    return json::value(static_cast<double>(sample.ordinal % 3));
  };
  world.hooks.filter.emplace<FilterRule>() = [](const Group& group) {
    const double sum = group.samples[0].reward_value("") + group.samples[1].reward_value("");
    return FilterVerdict{.keep = sum != 1, .reason = "sum_1"};
  };
  world.give_returned_first();
  Rollout rollout(world.engine, world.config, world.hooks);
  std::vector<std::string> lines;
  for (int step = 0; step < 4; ++step) {
    world.engine.version = step;
    const StepResult result = world.run(rollout);
    for (const Group& group : result.groups) lines.push_back("kept " + trace(group));
    for (const auto& [ordinal, reason] : std::exchange(world.dropped, {}))
      lines.push_back("dropped " + std::to_string(ordinal) + " " + reason);
    for (const Group& group : world.returned) lines.push_back("back " + trace(group));
  }
  return lines;
}

TEST(Rollout, ARunRepeatsHoweverEngineAndRewardsAreTimed) {
  for (const auto& [num_slots, refills_at_once] :
       {std::pair{4, false}, {9, false}, {64, false}, {4, true}, {64, true}}) {
    const std::vector<std::string> first = trace_of_a_run(num_slots, refills_at_once);
    const auto begins = [](std::string_view word) {
      return [word](const std::string& line) { return line.starts_with(word); };
    };
    EXPECT_EQ(std::ranges::count_if(first, begins("kept")), 12);
    EXPECT_GT(std::ranges::count_if(first, begins("dropped")), 3);
    EXPECT_GT(std::ranges::count_if(first, begins("back")), 3);
    for (int again = 0; again < 8; ++again)
      ASSERT_EQ(trace_of_a_run(num_slots, refills_at_once), first);
  }
}

TEST(Rollout, DrawsByPromptAreThoseOfEveryEpoch) {
  for (const bool by_prompt : {false, true}) {
    World world;
    world.rules.seed = 7;
    world.rules.draws_by_prompt = by_prompt;
    world.prompts.on_take = [&](int64_t count) {
      std::vector<Group> groups;
      for (int64_t i = 0; i < count; ++i, ++world.next) {
        Group group = group_of(world.next, 2);
        // Three prompts, again and again.
        for (Sample& sample : group.samples)
          sample.tokens[0] = static_cast<TokenId>(100 + world.next % 3);
        groups.push_back(std::move(group));
      }
      return groups;
    };
    std::mutex mutex;
    std::map<TokenId, std::set<uint64_t>> seeds;
    world.engine.length_of = [&](const engine::GenerateRequest& request) {
      const std::lock_guard lock(mutex);
      seeds[request.input_ids[0]].insert(request.sampling.sampling_seed.value());
      return int64_t{3};
    };
    Rollout rollout(world.engine, world.config, world.hooks);
    for (int step = 0; step < 3; ++step) world.run(rollout, step);
    ASSERT_EQ(seeds.size(), 3U);
    for (const auto& [prompt, of_prompt] : seeds)
      EXPECT_EQ(of_prompt.size(), by_prompt ? 2U : 6U) << prompt;
    if (by_prompt) {
      std::set<uint64_t> all;
      for (const auto& [prompt, of_prompt] : seeds) all.insert(of_prompt.begin(), of_prompt.end());
      EXPECT_EQ(all.size(), 6U);
    }
  }
}

TEST(Rollout, RefilledAtOnceAsManyGroupsAreOpenToTheEndOfTheStep) {
  for (const bool at_once : {false, true}) {
    World world;
    world.config = {.groups_per_step = 4,
                    .groups_per_refill = 6,
                    .max_concurrent_samples = 4,
                    .num_slots = 4,
                    .keeps_partial = true,
                    .refills_at_once = at_once};
    const StepResult result = world.run();
    EXPECT_EQ(result.groups.size(), 4U);
    EXPECT_EQ(world.returned.size(), at_once ? 5U : 2U);  // none is begun for the last one
    EXPECT_EQ(world.next, at_once ? 9 : 6);
  }
}

TEST(Rollout, WithoutPartialRolloutAllTokensOfAGroupThatIsHandedBackAreDiscarded) {
  World world;
  world.config = {.groups_per_step = 1, .groups_per_refill = 3};
  int64_t discarded = 0;
  world.prompts.on_discard = [&discarded](int64_t, int64_t num_tokens) { discarded += num_tokens; };
  const StepResult result = world.run();
  ASSERT_EQ(world.returned.size(), 2u);
  EXPECT_EQ(num_sampled_tokens(world.returned[0]), 0);
  EXPECT_GT(discarded, 0);
  EXPECT_EQ(result.end.generated_tokens, num_sampled_tokens(result.groups[0]) + discarded);
}

TEST(Rollout, TokensSampledAfterTheStepClosedAreDiscardedAndCounted) {
  World world;
  world.config = {.groups_per_step = 1, .groups_per_refill = 2, .keeps_partial = true};
  world.engine.never = {101};
  world.hooks.scorer.rule.score = [](const Sample&,
                                     const std::stop_token&) -> Expected<json::value> {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the engine goes on meanwhile
    return json::value(1.0);
  };
  std::map<int64_t, int64_t> told;
  world.prompts.on_discard = [&told](int64_t ordinal, int64_t num_tokens) {
    told[ordinal] += num_tokens;
  };
  const StepResult result = world.run();
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].samples[1].response_length(), 3);
  EXPECT_GT(result.end.discarded_tokens, 0);
  EXPECT_EQ(told, (std::map<int64_t, int64_t>{{1, result.end.discarded_tokens}}));
  EXPECT_EQ(result.end.generated_tokens, 6 + 6 + result.end.discarded_tokens);
}

TEST(Rollout, GroupsLeaveInTheOrderOfVirtualTimeBeforeTheirStepEnds) {
  World world;
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    return int64_t{103} - request.input_ids.front();  // 3, 2, 1
  };
  world.config.max_concurrent_samples = 64;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_step(world.order());
  std::vector<int64_t> ordinals;
  for (int i = 0; i < 3; ++i) ordinals.push_back(std::get<Group>(rollout.next()).ordinal);
  EXPECT_EQ(ordinals, (std::vector<int64_t>{2, 1, 0}));
  EXPECT_TRUE(std::holds_alternative<StepEnd>(rollout.next()));
}

/// Takes the records of a step as slowly as a loop that is busy.
std::vector<std::string> take_slowly(Rollout& rollout, std::chrono::milliseconds pause) {
  std::vector<std::string> lines;
  for (;;) {
    std::this_thread::sleep_for(pause);
    StepRecord record = rollout.next();
    if (const auto* end = std::get_if<StepEnd>(&record)) {
      EXPECT_FALSE(end->error);
      lines.push_back("end " + std::to_string(end->num_failed_groups));
      return lines;
    }
    lines.push_back(std::to_string(std::get<Group>(record).ordinal));
  }
}

TEST(Rollout, AFullQueueHoldsGroupsBackAndLosesNone) {
  World world;
  world.config = {.groups_per_step = 6,
                  .groups_per_refill = 6,
                  .max_concurrent_samples = 64,
                  .reward_timeout = std::chrono::milliseconds(40)};
  world.hooks.filter.emplace<FilterRule>() = [](const Group& group) {
    return FilterVerdict{.keep = group.ordinal % 3 != 1, .reason = "one_of_three"};
  };
  std::vector<std::string> expected;
  std::vector<std::pair<int64_t, std::string>> expected_drops;
  for (const int64_t max_waiting : {64, 1, 2}) {
    world.config.max_waiting_groups = max_waiting;
    world.next = 0;
    world.dropped.clear();
    world.returned.clear();
    Rollout rollout(world.engine, world.config, world.hooks);
    rollout.open_step(world.order());
    const auto pause = std::chrono::milliseconds(max_waiting == 64 ? 0 : 20);
    const std::vector<std::string> lines = take_slowly(rollout, pause);
    ASSERT_EQ(lines.size(), 7u);
    if (max_waiting == 64) {
      expected = lines;
      expected_drops = world.dropped;
    }
    EXPECT_EQ(lines, expected) << "nor does a reward miss its deadline meanwhile";
    EXPECT_EQ(world.dropped, expected_drops);
    EXPECT_EQ(6 + world.dropped.size() + world.returned.size(),
              static_cast<std::size_t>(world.next));
  }
}

TEST(Rollout, AFullQueueDoesNotKeepAStopRequestOut) {
  World world;
  world.config.max_waiting_groups = 1;
  world.config.max_concurrent_samples = 64;
  Rollout rollout(world.engine, world.config, world.hooks);
  rollout.open_step(world.order());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // one waits, two are held back
  world.stop = true;
  const StepResult result = take_step(rollout);
  EXPECT_EQ(result.groups.size() + world.returned.size(), 3u);
}

}  // namespace
}  // namespace slime::rollout
