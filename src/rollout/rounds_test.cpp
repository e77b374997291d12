#include "rollout/rounds.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "core/version_runs.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

void dawdle(int64_t most_microseconds) {
  thread_local std::mt19937 chance(std::random_device{}());
  std::this_thread::sleep_for(
      std::chrono::microseconds(chance() % static_cast<uint64_t>(most_microseconds)));
}

/// Responses of 1 to 40 tokens, in parts.
int64_t uneven_length(const engine::GenerateRequest& request) {
  const auto whole = static_cast<int64_t>(1 + request.sampling.sampling_seed.value() % 40);
  return std::max<int64_t>(1, whole - (static_cast<int64_t>(request.input_ids.size()) - 2));
}

enum class Update { kSuspend, kInterrupt, kDrain };

struct Form {
  int64_t max_lag = 1;
  int64_t steps_per_update = 1;
  ConsumptionOrder order = ConsumptionOrder::kDispatch;
  StalePolicy policy = StalePolicy::kWait;
  Update update = Update::kSuspend;
  int64_t train_rounds = 1;
};

/// What a run was: each step's groups, who made their tokens, and what was dropped until then. Every
/// engine step, reward and training takes a time of its own.
std::vector<std::string> history(const Form& form) {
  constexpr int64_t kSteps = 10;
  World world;
  world.engine.version = 0;
  world.engine.length_of = uneven_length;
  world.rules.sampling.max_new_tokens = 60;
  world.config.max_concurrent_samples = 9;
  world.config.reward_threads = 3;
  world.give_returned_first();
  world.hooks.scorer.rule.score = [](const Sample&,
                                     const std::stop_token&) -> Expected<json::value> {
    dawdle(2000);
    return json::value(1.0);
  };
  world.hooks.filter.emplace<FilterRule>() = [](const Group& group) {
    return FilterVerdict{.keep = group.ordinal % 5 != 2, .reason = "odd"};
  };
  Rounds rounds(world.engine, {.tokens_per_round = 8, .reward_threads = 3});
  Rollout rollout(rounds.engine(), world.config, world.hooks, &rounds);
  rollout.open_stream({.staleness = {.groups_per_step = world.config.groups_per_step,
                                     .steps_per_update = form.steps_per_update,
                                     .max_lag = form.max_lag,
                                     .policy = form.policy},
                       .num_steps = kSteps,
                       .rules = world.rules,
                       .order = form.order,
                       .stop = &world.stop});
  std::vector<std::string> lines;
  for (int64_t step = 0; step < kSteps; ++step) {
    std::string line;
    for (;;) {
      const StepRecord record = rollout.next();
      if (const auto* end = std::get_if<StepEnd>(&record)) {
        EXPECT_FALSE(end->error);
        break;
      }
      const Group& group = std::get<Group>(record);
      line += " " + std::to_string(group.ordinal) + "@" + std::to_string(*group.begun_with);
      for (const Sample& sample : group.samples) {
        for (const VersionRun& run : sample.versions)
          line += "/" + std::to_string(run.version) + "x" + std::to_string(run.num_tokens);
      }
    }
    for (const auto& [ordinal, reason] : world.dropped)
      line += " -" + std::to_string(ordinal) + reason;
    rounds.pass_beside(form.train_rounds, [] { dawdle(5000); });
    Rollout::StateLock lock(rollout);
    line += " open " + std::to_string(lock.snapshot().open_groups.size()) + " sampled " +
            std::to_string(lock.snapshot().generated_tokens);
    if ((step + 1) % form.steps_per_update == 0) {
      if (form.update != Update::kSuspend) rollout.hold(form.update == Update::kInterrupt);
      world.engine.version = (step + 1) / form.steps_per_update;
      rollout.release(world.engine.version);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

class DeterministicSchedule : public testing::TestWithParam<Form> {};

TEST_P(DeterministicSchedule, DoesNotDependOnAnybodysSpeed) {
  const std::vector<std::string> first = history(GetParam());
  for (int again = 0; again < 4; ++again) EXPECT_EQ(history(GetParam()), first);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, DeterministicSchedule,
    testing::Values(Form{}, Form{.max_lag = 2, .steps_per_update = 2}, Form{.max_lag = 0},
                    Form{.max_lag = 4, .train_rounds = 3}, Form{.train_rounds = 0},
                    Form{.max_lag = 2, .order = ConsumptionOrder::kFinish},
                    Form{.order = ConsumptionOrder::kFinish, .policy = StalePolicy::kRetry},
                    Form{.order = ConsumptionOrder::kFinish, .policy = StalePolicy::kDrop},
                    Form{.update = Update::kInterrupt}, Form{.update = Update::kDrain}));

TEST(Rounds, GenerationGoesOnBesideTrainingAndNoFurther) {
  World world;
  world.engine.length_of = [](const engine::GenerateRequest&) { return int64_t{1000}; };
  world.rules.sampling.max_new_tokens = 1000;
  Rounds rounds(world.engine, {.tokens_per_round = 8});
  Rollout rollout(rounds.engine(), world.config, world.hooks, &rounds);
  rollout.open_stream({.staleness = {.groups_per_step = 3},
                       .num_steps = 1,
                       .rules = world.rules,
                       .stop = &world.stop});
  const auto num_sampled = [&rollout] {
    return Rollout::StateLock(rollout).snapshot().generated_tokens;
  };
  rounds.pass_beside(3, [] {});
  EXPECT_EQ(num_sampled(), 4 * 3 * 8);  // four samples at once, three rounds of eight tokens
  rounds.pass_beside(2, [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
  EXPECT_EQ(num_sampled(), 4 * 5 * 8);
}

TEST(Rounds, WhatTrainingThrowsComesOut) {
  World world;
  Rounds rounds(world.engine, {.tokens_per_round = 8});
  Rollout rollout(rounds.engine(), world.config, world.hooks, &rounds);
  EXPECT_THROW(rounds.pass_beside(1, [] { throw ConfigError("no"); }), ConfigError);
}

TEST(Rounds, ARewardThatDoesNotEndEndsTheRun) {
  World world;
  world.hooks.scorer.rule.score = [](const Sample&,
                                     const std::stop_token& stop) -> Expected<json::value> {
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return failure("stopped");
  };
  Rounds rounds(world.engine, {.tokens_per_round = 8, .patience = std::chrono::milliseconds(50)});
  Rollout rollout(rounds.engine(), world.config, world.hooks, &rounds);
  rollout.open_stream({.staleness = {.groups_per_step = 3},
                       .num_steps = 2,
                       .rules = world.rules,
                       .stop = &world.stop});
  EXPECT_THROW(take_step(rollout), std::runtime_error);
}

TEST(Rounds, TheStopFlagEndsARoundInTheMiddle) {
  World world;
  world.engine.never = {100, 101, 102};
  world.rules.sampling.max_new_tokens = 1'000'000'000;
  Rounds rounds(world.engine, {.tokens_per_round = 1'000'000'000});
  Rollout rollout(rounds.engine(), world.config, world.hooks, &rounds);
  rollout.open_stream({.staleness = {.groups_per_step = 3},
                       .num_steps = 2,
                       .rules = world.rules,
                       .stop = &world.stop});
  const std::jthread stopper([&world] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    world.stop = true;
  });
  EXPECT_TRUE(take_step(rollout).end.is_last);
  EXPECT_FALSE(world.returned.empty());
}

struct Heard {
  std::vector<std::string> events;
  engine::EngineClient::OnUpdate by(const std::string& name) {
    return [this, name](const engine::GenerateUpdate& update) {
      events.push_back(name + std::to_string(update.output_ids.size()) +
                       (update.finish ? "." : ""));
    };
  }
};

engine::GenerateRequest request_of(TokenId prompt, int64_t most, uint64_t seed = 0) {
  engine::GenerateRequest request{.rid = std::to_string(prompt), .input_ids = {prompt, 5}};
  request.sampling.max_new_tokens = most;
  request.sampling.sampling_seed = seed;
  return request;
}

TEST(RoundEngine, EachDrawsAPartAndCallersHearInTheOrderOfSubmission) {
  UnevenEngine below;
  below.length_of = uneven_length;
  std::multiset<int64_t> sampled_before;
  below.on_admitted = [&](const engine::GenerateRequest& request) {
    sampled_before.insert(request.num_sampled);
  };
  RoundEngine engine(below, 4);
  Heard heard;
  engine.submit(request_of(1, 10, 39), heard.by("a"));  // 40 tokens, at most 10
  engine.submit(request_of(2, 99, 5), heard.by("b"));   // 6 tokens
  engine.submit(request_of(3, 8, 39), heard.by("c"));
  int64_t num_rounds = 0;
  for (; engine.has_open(); ++num_rounds) engine.run_round([] {});
  EXPECT_EQ(num_rounds, 3);
  EXPECT_EQ(heard.events, (std::vector<std::string>{"a4", "b4", "c4", "a4", "b2.", "c4.", "a2."}));
  EXPECT_EQ(sampled_before, (std::multiset<int64_t>{0, 0, 0, 4, 4, 4, 8}));
}

TEST(RoundEngine, BetweenTwoRoundsAnAbortIsHeardAtOnce) {
  UnevenEngine below;
  below.length_of = [](const engine::GenerateRequest&) { return int64_t{100}; };
  RoundEngine engine(below, 4);
  Heard heard;
  const engine::RequestHandle first = engine.submit(request_of(1, 100), heard.by("a"));
  engine.submit(request_of(2, 100), heard.by("b"));
  engine.run_round([] {});
  EXPECT_TRUE(engine.abort(first));
  EXPECT_TRUE(engine.abort(first)) << "who is not there is no error";
  engine.run_round([] {});
  EXPECT_TRUE(engine.abort_all());
  EXPECT_FALSE(engine.has_open());
  EXPECT_EQ(heard.events, (std::vector<std::string>{"a4", "b4", "a0.", "b4", "b0."}));
}

TEST(RoundEngine, WhatTheEngineBelowGivesUpIsGivenUp) {
  UnevenEngine below;
  below.failure = engine::FinishReason::Cause::kEngineFailed;
  RoundEngine engine(below, 4);
  std::optional<engine::FinishReason> finish;
  engine.submit(request_of(1, 100),
                [&finish](const engine::GenerateUpdate& update) { finish = update.finish; });
  engine.run_round([] {});
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->cause, engine::FinishReason::Cause::kEngineFailed);
  EXPECT_FALSE(engine.has_open());
}

}  // namespace
}  // namespace slime::rollout
