/// An engine that others use too, and one that refuses, fails or cannot be reached.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "core/out_of_memory.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

TEST(Rollout, ClosingAStepLeavesForeignRequestsOfTheEngineAlone) {
  World world;
  world.engine.never = {101, 7};
  world.config.groups_per_refill = 4;
  world.config.max_concurrent_samples = 64;
  std::promise<engine::FinishReason> ended;
  std::future<engine::FinishReason> end = ended.get_future();
  engine::GenerateRequest foreign;
  foreign.rid = "rollout-2.0";  // as the step calls a request of its own
  foreign.input_ids = {7};
  foreign.sampling.max_new_tokens = 8;
  const engine::RequestHandle handle =
      world.engine.submit(foreign, [&](engine::GenerateUpdate update) {
        if (update.finish) ended.set_value(*update.finish);
      });
  EXPECT_EQ(world.run().groups.size(), 3u);
  EXPECT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(end.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
      << "it draws on";
  ASSERT_TRUE(world.engine.abort(handle));
  EXPECT_EQ(end.get().kind, engine::FinishReason::Kind::kAbort);
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
    if (!has_rewards) world.hooks.scorer.rule.score = nullptr;
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
  world.hooks.scorer.rule.score = nullptr;
  world.config.max_failed_groups = 1;
  world.prompts.on_take = [&](int64_t) {
    std::vector<Group> groups;
    while (world.next < 3) groups.push_back(group_of(world.next++, 2));
    return groups;
  };
  const StepResult result = world.run();
  EXPECT_EQ(result.groups.size(), 2u);
  ASSERT_EQ(world.returned.size(), 1u);
  EXPECT_EQ(world.returned[0].ordinal, 1);
}

}  // namespace
}  // namespace slime::rollout
