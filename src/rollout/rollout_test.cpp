#include "rollout/rollout.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <future>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "core/bounded_queue.h"
#include "core/error.h"
#include "core/out_of_memory.h"
#include "rollout/concurrency_limit.h"

namespace slime::rollout {
namespace {

/// Requests draw a token at a time on a thread of its own, in uneven steps: in each round every
/// request draws or not, as chance has it. A response has `length_of` tokens, the last of them
/// id 2.
class UnevenEngine final : public engine::EngineClient {
 public:
  UnevenEngine() : thread_([this] { serve(); }) {}
  ~UnevenEngine() override {
    is_paused = false;
    queue_.close();
    thread_.join();
  }

  void submit(engine::GenerateRequest request, OnUpdate on_update) override {
    num_submitted_++;
    queue_.push({std::move(request), std::move(on_update)});
  }
  Expected<void> abort(const std::string& rid) override {
    engine::GenerateRequest aborted;
    aborted.rid = rid;
    queue_.push({std::move(aborted), nullptr});
    if (loses_answers_to_aborts) return slime::failure("no answer to an abort");
    return {};
  }
  Expected<void> abort_prefix(const std::string&) override {
    return slime::failure("the rollout aborts by rid");
  }
  Expected<void> abort_all() override { return slime::failure("the rollout aborts by rid"); }
  Expected<void> pause(engine::PauseMode) override {
    if (num_failing_pauses-- > 0) return slime::failure("it does not pause");
    is_paused = true;
    return {};
  }
  Expected<void> resume() override {
    if (num_failing_resumes-- > 0) return slime::failure("it does not resume");
    is_paused = false;
    return {};
  }
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override { return {}; }
  Expected<void> wake() override { return {}; }
  Expected<void> update_weights(const engine::WeightUpdate&) override { return {}; }
  WeightVersion weight_version() const override { return version; }
  Expected<engine::EngineLoad> load() const override { return engine::EngineLoad{}; }

  WeightVersion version = 7;
  std::function<int64_t(const engine::GenerateRequest&)> length_of =
      [](const engine::GenerateRequest&) { return 3; };
  std::function<void(const engine::GenerateRequest&)> on_admitted;  // on the engine's thread
  std::vector<TokenId> never;    // first tokens of prompts whose responses do not end
  std::vector<TokenId> refused;  // first tokens of prompts that it has no room for
  std::optional<engine::FinishReason::Cause> failure;  // what every request is answered with
  std::atomic<int64_t> num_submitted_{0};
  std::atomic<bool> is_paused{false};
  std::atomic<bool> loses_answers_to_aborts{false};  // it does abort
  std::atomic<int> num_failing_pauses{0};
  std::atomic<int> num_failing_resumes{0};

 private:
  struct Job {
    engine::GenerateRequest request;
    OnUpdate on_update;
    int64_t length = 0;
    int64_t num_drawn = 0;
  };

  void serve() {
    std::mt19937 chance(std::random_device{}());
    std::vector<Job> running;
    while (true) {
      std::optional<Job> job = running.empty() ? queue_.pop() : queue_.try_pop();
      if (!job && running.empty()) return;
      if (!job && is_paused) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else if (!job) {
        std::erase_if(running, [&](Job& drawing) { return chance() % 2 == 0 && draw(drawing); });
        if (chance() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else if (!job->on_update) {
        std::erase_if(running, [&](Job& other) {
          if (other.request.rid != job->request.rid) return false;
          abort_job(other, engine::FinishReason::Cause::kRequested, "aborted by the caller");
          return true;
        });
      } else if (std::ranges::find(refused, job->request.input_ids.front()) != refused.end()) {
        abort_job(*job, engine::FinishReason::Cause::kQueueFull, "too many wait");
      } else if (failure) {
        abort_job(*job, *failure, "the engine failed: no more room");
      } else {
        const TokenId first = job->request.input_ids.front();
        if (on_admitted) on_admitted(job->request);
        job->length = std::ranges::find(never, first) != never.end()
                          ? std::numeric_limits<int64_t>::max()
                          : std::min(length_of(job->request), job->request.sampling.max_new_tokens);
        running.push_back(std::move(*job));
      }
    }
  }

  /// True: that was its last token.
  bool draw(Job& job) const {
    const bool is_last = ++job.num_drawn == job.length;
    engine::GenerateUpdate update;
    update.output_ids = {is_last ? TokenId{2} : job.request.input_ids.front()};
    update.output_log_probs = {-0.5F};
    update.versions = {{version, 1}};
    if (is_last) update.finish = engine::FinishReason{.kind = engine::FinishReason::Kind::kStop};
    job.on_update(std::move(update));
    return is_last;
  }

  static void abort_job(Job& job, engine::FinishReason::Cause cause, const std::string& why) {
    engine::GenerateUpdate update;
    update.finish = engine::aborted(cause, why);
    job.on_update(std::move(update));
  }

  BoundedQueue<Job> queue_{4096};
  std::thread thread_;
};

Group group_of(int64_t ordinal, int n) {
  Group group{.ordinal = ordinal, .samples = {}};
  for (int i = 0; i < n; ++i) {
    Sample sample;
    sample.ordinal = ordinal * n + i;
    sample.group = ordinal;
    sample.index_in_group = i;
    sample.tokens = {static_cast<TokenId>(100 + ordinal), 5};
    sample.prompt_length = 2;
    group.samples.push_back(std::move(sample));
  }
  return group;
}

struct World {
  UnevenEngine engine;
  RolloutConfig config{.groups_per_step = 3, .groups_per_refill = 3, .max_concurrent_samples = 4};
  RolloutHooks hooks;
  ResponseRules rules;
  std::atomic<bool> stop{false};
  int64_t next = 0;
  std::vector<Group> returned;
  std::vector<std::pair<int64_t, std::string>> dropped;

  World() {
    rules.sampling.max_new_tokens = 8;
    hooks.take_groups = [this](int64_t count) {
      std::vector<Group> groups;
      for (int64_t i = 0; i < count; ++i) groups.push_back(group_of(next++, 2));
      return groups;
    };
    hooks.give_back = [this](std::vector<Group> groups) {
      std::ranges::move(groups, std::back_inserter(returned));
    };
    hooks.detokenize = [](std::span<const TokenId> ids) { return std::to_string(ids.size()); };
    hooks.score = [](const Sample&, const std::stop_token&) -> Expected<json::value> {
      return json::value(1.0);
    };
    hooks.on_drop = [this](const Group& group, const std::string& reason) {
      dropped.emplace_back(group.ordinal, reason);
    };
  }
  StepOrder order(int64_t step = 0) {
    return {.step = step, .rules = rules, .version = engine.version, .stop = &stop};
  }
  /// A step on a rollout of its own.
  StepResult run() {
    Rollout rollout(engine, config, hooks);
    return run(rollout);
  }
  StepResult run(Rollout& rollout, int64_t step = 0) {
    rollout.open_step(order(step));
    return take_step(rollout);
  }
};

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
  world.hooks.filter = [](const Group& group) {
    return FilterVerdict{.keep = group.ordinal % 2 == 0, .reason = "odd"};
  };
  const StepResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) EXPECT_EQ(group.ordinal % 2, 0);
  EXPECT_EQ(result.end.drops.at("odd"), static_cast<int64_t>(world.dropped.size()));
  // Each prompt that was taken has one fate: returned, dropped or handed back.
  EXPECT_EQ(result.groups.size() + world.dropped.size() + world.returned.size(),
            static_cast<std::size_t>(world.next));
}

TEST(Rollout, AGroupWhoseRewardFailsIsDroppedNotScoredZero) {
  World world;
  world.hooks.score = [](const Sample& sample, const std::stop_token&) -> Expected<json::value> {
    if (sample.group == 1) return failure("the judge is asleep");
    return json::value(1.0);
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.end.num_failed_groups, 1);
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{1, "failed"}}));
}

TEST(Rollout, ARewardThatCannotBeUsedFailsItsSampleWithTheReason) {
  World world;
  world.hooks.score = [](const Sample& sample, const std::stop_token&) -> Expected<json::value> {
    return sample.group == 1 ? json::value("x") : json::value(1.0);
  };
  world.rules.reward_problem = [](const json::value& reward) -> std::optional<std::string> {
    if (reward.is_number()) return std::nullopt;
    return json::serialize(reward) + " is not a number";
  };
  std::string failure;
  world.hooks.on_drop = [&](const Group& group, const std::string&) {
    failure = group.samples.front().failure;
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.end.num_failed_groups, 1);
  EXPECT_EQ(failure, "reward: \"x\" is not a number");
}

TEST(Rollout, TooManyFailuresEndTheRunWithTheReason) {
  World world;
  world.config.max_failed_groups = 5;
  world.hooks.score = [](const Sample&, const std::stop_token&) -> Expected<json::value> {
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
  world.hooks.score = [](const Sample& sample, const std::stop_token&) -> Expected<json::value> {
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
  world.hooks.score = [](const Sample& sample, const std::stop_token&) -> Expected<json::value> {
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
  world.hooks.score = [&](const Sample&, const std::stop_token&) -> Expected<json::value> {
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
  world.hooks.score = [&](const Sample&, const std::stop_token&) -> Expected<json::value> {
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
      << "as many tokens as the others had drawn when the last of them finished";
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

TEST(Rollout, OlderTokensAreMaskedWhenAskedFor) {
  World world;
  world.config.masks_older_tokens = true;
  world.hooks.take_groups = [](int64_t) {
    std::vector<Group> groups{group_of(0, 2), group_of(1, 2), group_of(2, 2)};
    Sample& half = groups[0].samples[0];
    half.tokens.push_back(9);
    half.log_probs = {-1.0F};
    half.versions = {{6, 1}};
    half.status = Status::kAborted;
    return groups;
  };
  const StepResult result = world.run();
  const Sample& sample = result.groups[0].samples[0];
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{6, 1}, {7, 3}}));
}

TEST(Rollout, EvaluationKeepsFailedSamples) {
  World world;
  world.hooks.score = [](const Sample& sample, const std::stop_token&) -> Expected<json::value> {
    if (sample.ordinal == 1) return failure("broken");
    return json::value(0.0);
  };
  Rollout rollout(world.engine, world.config, world.hooks);
  std::vector<Group> groups{group_of(1, 2), group_of(0, 2)};
  const std::vector<Group> done = rollout.evaluate(std::move(groups), world.rules, world.stop);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].samples[1].status, Status::kFailed);
  EXPECT_EQ(done[1].samples[0].status, Status::kCompleted);
}

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
std::vector<std::string> trace_of_a_run(int64_t num_slots) {
  World world;
  world.config = {.groups_per_step = 3,
                  .groups_per_refill = 7,
                  .max_concurrent_samples = 9,
                  .num_slots = num_slots,
                  .keeps_partial = true,
                  .masks_older_tokens = true,
                  .reward_threads = 4};
  world.rules.sampling.max_new_tokens = 40;
  world.engine.length_of = [](const engine::GenerateRequest& request) {
    // A length of its own for every sample, whatever was drawn of it before.
    const auto whole = static_cast<int64_t>(1 + request.sampling.sampling_seed.value() % 23);
    return std::max<int64_t>(1, whole - (static_cast<int64_t>(request.input_ids.size()) - 2));
  };
  world.hooks.score = [](const Sample& sample, const std::stop_token&) -> Expected<json::value> {
    thread_local std::mt19937 chance(std::random_device{}());
    std::this_thread::sleep_for(std::chrono::microseconds(chance() % 2000));
    if (sample.ordinal % 13 == 5) return failure("odd sample");
    return json::value(static_cast<double>(sample.ordinal % 3));
  };
  world.hooks.filter = [](const Group& group) {
    const double sum = group.samples[0].reward_value("") + group.samples[1].reward_value("");
    return FilterVerdict{.keep = sum != 1, .reason = "sum_1"};
  };
  world.hooks.take_groups = [&world](int64_t count) {
    std::vector<Group> groups;
    while (static_cast<int64_t>(groups.size()) < count) {
      if (world.returned.empty()) {
        groups.push_back(group_of(world.next++, 2));
      } else {
        groups.push_back(std::move(world.returned.front()));
        world.returned.erase(world.returned.begin());
      }
    }
    return groups;
  };
  world.hooks.give_back = [&world](std::vector<Group> groups) {
    std::ranges::move(groups, std::back_inserter(world.returned));
  };
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
  for (const int64_t num_slots : {4, 9, 64}) {
    const std::vector<std::string> first = trace_of_a_run(num_slots);
    const auto begins = [](std::string_view word) {
      return [word](const std::string& line) { return line.starts_with(word); };
    };
    EXPECT_EQ(std::ranges::count_if(first, begins("kept")), 12);
    EXPECT_GT(std::ranges::count_if(first, begins("dropped")), 3);
    EXPECT_GT(std::ranges::count_if(first, begins("back")), 3);
    for (int again = 0; again < 8; ++again) ASSERT_EQ(trace_of_a_run(num_slots), first);
  }
}

TEST(Rollout, TokensDrawnAfterTheStepClosedAreDiscardedAndCounted) {
  World world;
  world.config = {.groups_per_step = 1, .groups_per_refill = 2, .keeps_partial = true};
  world.engine.never = {101};
  world.hooks.score = [](const Sample&, const std::stop_token&) -> Expected<json::value> {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the engine goes on meanwhile
    return json::value(1.0);
  };
  const StepResult result = world.run();
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].samples[1].response_length(), 3);
  EXPECT_GT(result.end.discarded_tokens, 0);
  EXPECT_EQ(result.end.generated_tokens, 6 + 6 + result.end.discarded_tokens);
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
  world.hooks.score = [&](const Sample& sample,
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

TEST(Rollout, ASampleBeyondALimitThatWasLoweredIsTruncatedAndTheStepGoesOn) {
  World world;
  world.config.max_concurrent_samples = 1;
  world.rules.sampling.max_new_tokens = 4;
  world.hooks.take_groups = [](int64_t) {
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
  world.hooks.take_groups = [&](int64_t count) {
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
    EXPECT_EQ(world.engine.num_submitted_, num_submitted) << "nothing is drawn between steps";
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
  world.hooks.filter = [](const Group& group) {
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

TEST(Rollout, EndsPromptlyWithRequestsInFlightAndARewardThatHangs) {
  World world;
  world.engine.never = {101};
  world.config.max_concurrent_samples = 64;
  world.config.reward_timeout = std::chrono::seconds(100);
  world.config.reward_threads = 4;
  std::atomic<int> num_hanging{0};
  world.hooks.score = [&](const Sample&, const std::stop_token& stop) -> Expected<json::value> {
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

TEST(Rollout, AnEvaluationStandsBetweenStepsAndBesideAnOpenOne) {
  World world;
  world.config.max_waiting_groups = 1;
  Rollout rollout(world.engine, world.config, world.hooks);
  const auto evaluate = [&] {
    return rollout.evaluate({group_of(0, 2), group_of(1, 2)}, world.rules, world.stop);
  };
  EXPECT_EQ(world.run(rollout, 0).groups.size(), 3u);
  EXPECT_EQ(evaluate().size(), 2u);
  rollout.open_step(world.order(1));  // its groups have the ordinals 3, 4, 5
  const std::vector<Group> beside = evaluate();
  ASSERT_EQ(beside.size(), 2u);
  EXPECT_EQ(beside[0].samples[0].status, Status::kCompleted);
  EXPECT_EQ(take_step(rollout).groups.size(), 3u);
  EXPECT_TRUE(world.returned.empty());
}

TEST(Rollout, ClosingAStepLeavesForeignRequestsOfTheEngineAlone) {
  World world;
  world.engine.never = {101, 7};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  std::promise<engine::FinishReason> ended;
  std::future<engine::FinishReason> end = ended.get_future();
  engine::GenerateRequest foreign;
  foreign.rid = "somebody";
  foreign.input_ids = {7};
  foreign.sampling.max_new_tokens = 8;
  world.engine.submit(foreign, [&](engine::GenerateUpdate update) {
    if (update.finish) ended.set_value(*update.finish);
  });
  EXPECT_EQ(world.run().groups.size(), 3u);
  EXPECT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(end.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
      << "it draws on";
  ASSERT_TRUE(world.engine.abort("somebody"));
  EXPECT_EQ(end.get().kind, engine::FinishReason::Kind::kAbort);
}

TEST(Rollout, WhatHooksThrowReachesTheLoopWithItsTypeAndTheNextStepWorks) {
  World world;
  Rollout rollout(world.engine, world.config, [&] {
    RolloutHooks hooks = world.hooks;
    hooks.take_groups = [&](int64_t count) {
      if (world.next == 0) {
        world.next = 1;
        throw ConfigError("the data file is gone");
      }
      return world.hooks.take_groups(count);
    };
    return hooks;
  }());
  EXPECT_THROW(world.run(rollout), ConfigError);
  EXPECT_EQ(world.run(rollout).groups.size(), 3u);
}

TEST(ConcurrencyLimit, APermitComesBackAlsoWhenSomethingThrows) {
  boost::asio::io_context context(1);
  ConcurrencyLimit limit(1);
  std::vector<int> entered;
  const auto enter = [](ConcurrencyLimit& limit, std::vector<int>& entered,
                        int who) -> boost::asio::awaitable<void> {
    const ConcurrencyLimit::Permit permit = co_await limit.acquire();
    entered.push_back(who);
    if (who < 2) throw std::runtime_error("no");
  };
  for (const int who : {0, 1, 2})
    boost::asio::co_spawn(context, enter(limit, entered, who), [](const std::exception_ptr&) {});
  context.run();
  EXPECT_EQ(entered, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(limit.num_free(), 1);
}

TEST(Rollout, AnEngineThatCannotComputeEndsTheRun) {
  World world;
  world.engine.failure = engine::FinishReason::Cause::kOutOfMemory;
  EXPECT_THROW(world.run(), OutOfMemory);
  World other;
  other.engine.failure = engine::FinishReason::Cause::kEngineFailed;
  try {
    other.run();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the engine failed: no more room");
  }
}

/// What a step on this rollout throws; empty: nothing.
std::string error_of_step(World& world, Rollout& rollout) {
  try {
    world.run(rollout);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(Rollout, AnAbortThatFailsEndsTheStepWithItsReasonAndTheOthersAreMadeAllTheSame) {
  World world;
  world.engine.never = {101};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  Rollout rollout(world.engine, world.config, world.hooks);
  world.engine.loses_answers_to_aborts = true;
  EXPECT_EQ(error_of_step(world, rollout), "no answer to an abort") << "when it was complete";

  world.engine.never = {105, 106};
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    world.stop = true;
  });
  EXPECT_EQ(error_of_step(world, rollout), "no answer to an abort") << "when it was stopped";
  stopper.join();

  world.stop = false;
  world.engine.loses_answers_to_aborts = false;
  world.engine.never.clear();
  EXPECT_EQ(world.run(rollout).groups.size(), 3u);
}

TEST(Rollout, AnEngineThatDoesNotPauseOrResumeEndsTheStepAndIsNotLeftPaused) {
  World world;
  Rollout rollout(world.engine, world.config, world.hooks);
  world.engine.num_failing_pauses = 1;
  EXPECT_EQ(error_of_step(world, rollout), "it does not pause");
  EXPECT_EQ(world.engine.num_submitted_, 0);

  world.engine.num_failing_resumes = 1;
  EXPECT_EQ(error_of_step(world, rollout), "it does not resume");
  EXPECT_FALSE(world.engine.is_paused) << "others use it too";

  world.engine.num_failing_resumes = 2;
  EXPECT_EQ(error_of_step(world, rollout), "it does not resume")
      << "not for the second call either";
  EXPECT_EQ(world.run(rollout).groups.size(), 3u);
}

TEST(Rollout, AGroupThatTheEngineGivesUpIsReplacedAndHandedBack) {
  for (const bool has_rewards : {true, false}) {
    World world;
    if (!has_rewards) world.hooks.score = nullptr;
    world.engine.refused = {101};
    const StepResult result = world.run();
    ASSERT_EQ(result.groups.size(), 3u);
    EXPECT_EQ(result.groups[0].ordinal, 0);
    EXPECT_EQ(result.groups[1].ordinal, 2);
    EXPECT_EQ(result.end.num_failed_groups, 1);
    EXPECT_TRUE(world.dropped.empty());
    ASSERT_FALSE(world.returned.empty());
    EXPECT_EQ(world.returned[0].ordinal, 1);
    EXPECT_EQ(world.returned[0].samples[0].status, Status::kPending);
    EXPECT_EQ(result.groups.size() + world.returned.size(), static_cast<std::size_t>(world.next));
  }
}

TEST(Rollout, AnEngineThatTakesNoRequestEndsTheStepWithItsReason) {
  World world;
  world.config.max_failed_groups = 5;
  world.engine.failure = engine::FinishReason::Cause::kQueueFull;
  try {
    world.run();
    FAIL() << "gave fewer groups";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no more room"), std::string::npos) << error.what();
  }
}

TEST(Rollout, TheDataMayEndWithGroupsThatTheEngineGaveUp) {
  World world;
  world.engine.refused = {101};
  world.hooks.score = nullptr;
  world.config.max_failed_groups = 1;
  world.hooks.take_groups = [&](int64_t) {
    std::vector<Group> groups;
    while (world.next < 3) groups.push_back(group_of(world.next++, 2));
    return groups;
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 2u);
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].ordinal, 1);
}

TEST(Rollout, EvaluationCountsWhatTheEngineGaveUpAsFailedWithTheReason) {
  World world;
  world.engine.refused = {101};
  Rollout rollout(world.engine, world.config, world.hooks);
  const std::vector<Group> done =
      rollout.evaluate({group_of(0, 2), group_of(1, 2)}, world.rules, world.stop);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].samples[0].status, Status::kCompleted);
  for (const Sample& sample : done[1].samples) {
    EXPECT_EQ(sample.status, Status::kFailed);
    EXPECT_EQ(sample.failure, "the engine gave it up: too many wait");
  }
}

TEST(Rollout, AnEvaluationThatIsStoppedLeavesWhatWasNotFinishedAborted) {
  World world;
  world.engine.never = {101};
  Rollout rollout(world.engine, world.config, world.hooks);
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    world.stop = true;
  });
  const std::vector<Group> done = rollout.evaluate({group_of(1, 2)}, world.rules, world.stop);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].samples[0].status, Status::kAborted);
}

}  // namespace
}  // namespace slime::rollout
