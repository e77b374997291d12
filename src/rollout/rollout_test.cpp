#include "rollout/rollout.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "core/bounded_queue.h"
#include "core/error.h"
#include "core/out_of_memory.h"

namespace slime::rollout {
namespace {

/// An engine that answers on a thread of its own: each response is its prompt's first token,
/// `length` times, then id 2. Requests whose first token is in `never` wait until they are aborted.
class EchoEngine final : public engine::EngineClient {
 public:
  EchoEngine() : thread_([this] { serve(); }) {}
  ~EchoEngine() override {
    queue_.close();
    thread_.join();
  }

  void submit(engine::GenerateRequest request, OnUpdate on_update) override {
    num_submitted_++;
    queue_.push({std::move(request), std::move(on_update)});
  }
  void abort(const std::string&) override {}
  void abort_all() override {
    is_aborting_ = true;
    queue_.push({{}, nullptr});
  }
  void pause(engine::PauseMode) override {}
  void resume() override {}
  bool flush_cache() override { return true; }
  void sleep() override {}
  void wake() override {}
  WeightVersion weight_version() const override { return 7; }
  engine::EngineLoad load() const override { return {}; }

  std::vector<TokenId> never;
  int failure = 0;  // status code that every request is answered with; 0: none
  std::atomic<int64_t> num_submitted_{0};

 private:
  struct Job {
    engine::GenerateRequest request;
    OnUpdate on_update;
  };

  void serve() {
    std::vector<Job> stuck;
    while (std::optional<Job> job = queue_.pop()) {
      if (job->on_update && failure != 0) {
        engine::GenerateUpdate update;
        update.finish = engine::FinishReason{.kind = engine::FinishReason::Kind::kAbort,
                                             .message = "the engine failed: no more room",
                                             .status_code = failure};
        job->on_update(std::move(update));
      } else if (!job->on_update) {
        for (Job& waiting : stuck) finish(waiting, engine::FinishReason::Kind::kAbort, 1);
        stuck.clear();
      } else if (std::ranges::find(never, job->request.input_ids.front()) != never.end()) {
        if (is_aborting_) {
          finish(*job, engine::FinishReason::Kind::kAbort, 0);
        } else {
          stuck.push_back(std::move(*job));
        }
      } else {
        finish(*job, engine::FinishReason::Kind::kStop, 3);
      }
    }
  }

  static void finish(Job& job, engine::FinishReason::Kind kind, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      engine::GenerateUpdate update;
      update.output_ids = {i + 1 == length && kind == engine::FinishReason::Kind::kStop
                               ? TokenId{2}
                               : job.request.input_ids.front()};
      update.output_log_probs = {-0.5F};
      update.versions = {{7, 1}};
      if (i + 1 == length) update.finish = engine::FinishReason{.kind = kind, .status_code = 499};
      job.on_update(std::move(update));
    }
    if (length == 0) {
      engine::GenerateUpdate update;
      update.finish = engine::FinishReason{.kind = kind, .status_code = 499};
      job.on_update(std::move(update));
    }
  }

  BoundedQueue<Job> queue_{4096};
  std::atomic<bool> is_aborting_{false};
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
  EchoEngine engine;
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
    hooks.give_back = [this](std::vector<Group> groups) { returned = std::move(groups); };
    hooks.detokenize = [](std::span<const TokenId> ids) { return std::to_string(ids.size()); };
    hooks.score = [](const Sample&) -> Expected<json::value> { return json::value(1.0); };
    hooks.on_drop = [this](const Group& group, const std::string& reason) {
      dropped.emplace_back(group.ordinal, reason);
    };
  }
  RolloutResult run() { return Rollout(engine, config, hooks).run(rules, stop); }
};

TEST(Rollout, ReturnsScoredGroupsInOrder) {
  World world;
  const RolloutResult result = world.run();
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
  EXPECT_EQ(result.generated_tokens, 18);
}

TEST(Rollout, DroppedGroupsAreReplacedAndCounted) {
  World world;
  world.hooks.filter = [](const Group& group) {
    return FilterVerdict{.keep = group.ordinal % 2 == 0, .reason = "odd"};
  };
  const RolloutResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  for (const Group& group : result.groups) EXPECT_EQ(group.ordinal % 2, 0);
  EXPECT_EQ(result.drops.at("odd"), static_cast<int64_t>(world.dropped.size()));
  // Each prompt that was taken has one fate: returned, dropped or handed back.
  EXPECT_EQ(result.groups.size() + world.dropped.size() + world.returned.size(),
            static_cast<std::size_t>(world.next));
}

TEST(Rollout, AGroupWhoseRewardFailsIsDroppedNotScoredZero) {
  World world;
  world.hooks.score = [](const Sample& sample) -> Expected<json::value> {
    if (sample.group == 1) return failure("the judge is asleep");
    return json::value(1.0);
  };
  const RolloutResult result = world.run();
  EXPECT_EQ(result.num_failed_groups, 1);
  EXPECT_EQ(world.dropped, (std::vector<std::pair<int64_t, std::string>>{{1, "failed"}}));
}

TEST(Rollout, TooManyFailuresEndTheRunWithTheReason) {
  World world;
  world.config.max_failed_groups = 5;
  world.hooks.score = [](const Sample&) -> Expected<json::value> {
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
  world.hooks.score = [](const Sample& sample) -> Expected<json::value> {
    if (sample.ordinal == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return json::value(1.0);
  };
  const RolloutResult result = world.run();
  EXPECT_EQ(result.groups.size(), 3u);
  ASSERT_FALSE(world.dropped.empty());
  EXPECT_EQ(world.dropped.front(), (std::pair<int64_t, std::string>{0, "failed"}));
}

TEST(Rollout, WhatIsStillInFlightIsHandedBack) {
  World world;
  world.engine.never = {101};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  world.config.keeps_partial = true;
  const RolloutResult result = world.run();
  ASSERT_EQ(result.groups.size(), 3u);
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].ordinal, 1);
  EXPECT_EQ(world.returned[0].samples[0].status, Status::kAborted);
  EXPECT_EQ(world.returned[0].samples[0].response_length(), 1) << "partial tokens are kept";
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
  const RolloutResult result = world.run();
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
  const RolloutResult result = world.run();
  const Sample& sample = result.groups[0].samples[0];
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(sample.versions, (std::vector<VersionRun>{{6, 1}, {7, 3}}));
}

TEST(Rollout, EvaluationKeepsFailedSamples) {
  World world;
  world.hooks.score = [](const Sample& sample) -> Expected<json::value> {
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

TEST(Rollout, AnEngineThatCannotComputeEndsTheRun) {
  World world;
  world.engine.failure = 507;
  EXPECT_THROW(world.run(), OutOfMemory);
  World other;
  other.engine.failure = 500;
  try {
    other.run();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the engine failed: no more room");
  }
}

}  // namespace
}  // namespace slime::rollout
