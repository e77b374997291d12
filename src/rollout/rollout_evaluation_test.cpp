/// Evaluations, between steps and beside them.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

TEST(Rollout, EvaluationKeepsFailedSamples) {
  World world;
  world.hooks.scorer.rule.score = [](const Sample& sample,
                                     const std::stop_token&) -> Expected<json::value> {
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

TEST(Rollout, AnEvaluationTellsOfEachGroupAsItIsDone) {
  World world;
  Rollout rollout(world.engine, world.config, world.hooks);
  std::vector<int64_t> told;
  const auto on_group = [&](const Group& group) {
    EXPECT_EQ(group.samples.size(), 2u);
    EXPECT_FALSE(group.samples[0].reward.is_null());
    told.push_back(group.ordinal);
  };
  rollout.evaluate({group_of(0, 2), group_of(1, 2)}, world.rules, world.stop, on_group);
  std::ranges::sort(told);
  EXPECT_EQ(told, (std::vector<int64_t>{0, 1}));
  const auto broken = [](const Group&) { throw std::runtime_error("the disk is full"); };
  EXPECT_THROW(rollout.evaluate({group_of(0, 2)}, world.rules, world.stop, broken),
               std::runtime_error);
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
