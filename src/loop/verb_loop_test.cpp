#include "loop/verb_loop.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/error.h"
#include "loop/step_abandoned.h"

namespace slime::loop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// Writes down what is asked of it.
class NotedSteps final : public Steps {
 public:
  std::vector<std::string> done;
  std::atomic<bool> is_interrupted_now{false};
  std::string fails_at;

  WeightVersion version() const override { return version_; }
  void start_stream(WeightVersion version) override { note(fmt::format("stream {}", version)); }
  report::Collected collect(int64_t step) override {
    note(fmt::format("collect {}", step));
    if (is_interrupted_now) throw StepAbandoned();
    report::Collected collected;
    collected.groups.push_back({.ordinal = step, .samples = {Sample()}});
    return collected;
  }
  train::TrainReport train_on(const std::vector<Group>& groups) override {
    note(fmt::format("train {}", groups.front().ordinal));
    train::TrainReport report;
    report.steps.push_back({.step = 1, .metrics = {{"train/loss", 0.5}}});
    return report;
  }
  void abandon(const std::vector<Group>& groups) override {
    note(fmt::format("abandon {}", groups.front().ordinal));
  }
  void skip(const std::vector<Group>& groups) override {
    note(fmt::format("skip {}", groups.front().ordinal));
  }
  void publish(WeightVersion version) override {
    note(fmt::format("publish {}", version));
    version_ = version;
  }
  void end_step(int64_t step, const report::Collected&, const train::TrainReport* report) override {
    note(fmt::format("row {}{}", step, report == nullptr ? " untrained" : ""));
  }
  void evaluate(int64_t step) override { note(fmt::format("evaluate {}", step)); }
  void save(int64_t step) override { note(fmt::format("save {}", step)); }
  void finish(int64_t step) override { note(fmt::format("finish {}", step)); }
  bool is_interrupted() const override { return is_interrupted_now; }

 private:
  void note(std::string what) {
    if (what == fails_at) throw ConfigError("the reward server is gone");
    done.push_back(std::move(what));
  }
  WeightVersion version_ = 0;
};

/// A loop on a thread of its own, and a script that asks.
class World {
 public:
  explicit World(VerbRules rules = {}, setup::RunSchedule schedule = {.num_steps = 4})
      : schedule_(schedule), loop_(steps, schedule_, rules, queue, {}) {
    thread_ = std::thread([this] {
      try {
        loop_.run();
      } catch (const StepAbandoned&) {
        queue.end({.message = "interrupted"});
      } catch (const std::exception& error) {
        queue.end({.message = error.what()});
      }
    });
  }
  ~World() {
    if (thread_.joinable()) say("close");
    if (thread_.joinable()) thread_.join();
  }

  int64_t ask(const std::string& verb, std::optional<int64_t> step = {}) {
    json::object arguments;
    if (step) arguments["step"] = *step;
    return queue.add(verb, std::move(arguments));
  }
  VerbAnswer await(int64_t number) {
    std::atomic<bool> is_there{false};
    queue.call_when_answered(number, [&is_there] {
      is_there = true;
      is_there.notify_all();
    });
    is_there.wait(false);
    return *queue.answer_of(number);
  }
  /// Asks and awaits: the error, or "".
  std::string say(const std::string& verb, std::optional<int64_t> step = {}) {
    const VerbAnswer answer = await(ask(verb, step));
    const auto* error = std::get_if<VerbError>(&answer);
    return error == nullptr ? "" : error->message;
  }
  void end() {
    say("close");
    join();
  }
  void join() { thread_.join(); }
  const VerbLoop& loop() const { return loop_; }

  NotedSteps steps;
  VerbQueue queue;

 private:
  const setup::RunSchedule schedule_;
  VerbLoop loop_;
  std::thread thread_;
};

TEST(VerbLoop, AScriptInTheOrderOfTheLoopDoesWhatTheLoopDoes) {
  World world({.evaluates = true});
  world.say("evaluate", 0);
  for (int64_t step = 0; step < 2; ++step) {
    world.say("generate", step);
    world.say("train", step);
    world.say("update_weights");
    world.say("save", step);
  }
  world.end();
  EXPECT_THAT(world.steps.done,
              ElementsAre("evaluate -1", "collect 0", "train 0", "publish 1", "row 0", "save 0",
                          "collect 1", "train 1", "publish 2", "row 1", "save 1", "finish 2"));
}

TEST(VerbLoop, InAStreamAStepIsCollectedWhenItIsAwaited) {
  World world({.is_stream = true});
  world.say("generate", 0);
  const int64_t ahead = world.ask("generate", 1);
  world.say("train", 0);
  world.say("update_weights");
  world.await(ahead);
  world.say("train", 1);
  world.end();
  EXPECT_THAT(world.steps.done, ElementsAre("stream 0", "collect 0", "train 0", "publish 1",
                                            "row 0", "collect 1", "train 1", "row 1", "finish 2"));
}

TEST(VerbLoop, AwaitedTogetherTrainingGoesFirst) {
  World world({.is_stream = true});
  world.say("generate", 0);
  const int64_t ahead = world.ask("generate", 1);
  std::atomic<bool> is_there{false};
  world.queue.call_when_answered(ahead, [&is_there] {
    is_there = true;
    is_there.notify_all();
  });
  EXPECT_EQ(world.say("train", 0), "");
  is_there.wait(false);
  world.say("drop", 1);
  world.end();
  EXPECT_THAT(world.steps.done, ElementsAre("stream 0", "collect 0", "train 0", "row 0",
                                            "collect 1", "skip 1", "row 1 untrained", "finish 2"));
}

TEST(VerbLoop, ARolloutThatNobodyTrainsHoldsTheNextForAWhileOnly) {
  World world({.is_stream = true, .patience = milliseconds(150)});
  world.say("generate", 0);
  EXPECT_THAT(world.say("generate", 1),
              HasSubstr("rollout 0 is neither trained nor dropped, and nobody asks for that"));
  EXPECT_EQ(world.say("train", 0), "");
}

TEST(VerbLoop, WhatIsOutOfOrderIsRefusedByNameAndTheRunGoesOn) {
  World world;
  EXPECT_THAT(world.say("train", 0), HasSubstr("no rollout is generated yet"));
  EXPECT_THAT(world.say("save"), HasSubstr("nothing is trained yet"));
  EXPECT_THAT(world.say("update_weights"), HasSubstr("nothing is trained yet"));
  EXPECT_THAT(world.say("evaluate"), HasSubstr("--eval-interval"));
  EXPECT_THAT(world.say("generate", 2), HasSubstr("the next rollout is 0"));
  EXPECT_EQ(world.say("generate", 0), "");
  EXPECT_THAT(
      world.say("generate", 1),
      HasSubstr("rollout 0 is neither trained nor dropped; to generate beside training start "
                "the run with --train-async"));
  EXPECT_THAT(world.say("train", 3), HasSubstr("train(rollout 3): it is not generated yet"));
  EXPECT_EQ(world.say("train", 0), "");
  EXPECT_THAT(world.say("train", 0), HasSubstr("train(rollout 0): it was trained already"));
  EXPECT_THAT(world.say("save", 2), HasSubstr("the weights are those behind rollout 0"));
  EXPECT_EQ(world.say("update_weights"), "");
  EXPECT_THAT(world.say("update_weights"), HasSubstr("the weights of rollout 0 already"));
  EXPECT_EQ(world.say("save", 0), "");
  EXPECT_THAT(world.say("save", 0), HasSubstr("is there already"));
  EXPECT_THAT(world.say("generate", 0), HasSubstr("was generated already"));
  EXPECT_EQ(world.say("generate"), "");
  EXPECT_EQ(world.say("drop", 1), "");
  EXPECT_THAT(world.say("train", 1), HasSubstr("it was dropped already"));
}

TEST(VerbLoop, TheRunEndsWithItsLastRollout) {
  World world({}, {.first_step = 3, .num_steps = 4});
  EXPECT_THAT(world.say("generate", 0), HasSubstr("rollout 0 was generated already"));
  EXPECT_EQ(world.say("generate", 3), "");
  world.say("train", 3);
  EXPECT_THAT(world.say("generate", 4), HasSubstr("the run has 4 rollouts"));
}

TEST(VerbLoop, ARolloutInHandIsGivenBackWhenAStepFails) {
  World world({.evaluates = true});
  world.steps.fails_at = "evaluate -1";
  world.say("generate");
  EXPECT_EQ(world.say("evaluate"), "the reward server is gone");
  world.join();
  EXPECT_THAT(world.steps.done, ElementsAre("collect 0", "abandon 0"));
}

TEST(VerbLoop, AfterCloseNothingIsDone) {
  World world;
  world.say("generate");
  world.end();
  world.queue.end({.message = "the run is closed"});
  EXPECT_EQ(world.say("generate", 1), "the run is closed");
  EXPECT_THAT(world.steps.done, ElementsAre("collect 0", "abandon 0", "finish 0"));
}

TEST(VerbLoop, OnSharedWeightsNothingIsGeneratedBetweenTrainingAndUpdate) {
  World world({.shares_weights = true, .evaluates = true});
  world.say("generate");
  world.say("train");
  EXPECT_THAT(world.say("generate"), HasSubstr("--share-weights"));
  EXPECT_THAT(world.say("evaluate"), HasSubstr("call update_weights() first"));
  world.say("update_weights");
  EXPECT_EQ(world.say("generate"), "");
  EXPECT_EQ(world.say("drop"), "");
}

TEST(VerbLoop, AScriptThatNeverPublishesIsBehind) {
  World world;
  for (int64_t step = 0; step < 3; ++step) {
    world.say("generate", step);
    world.say("train", step);
  }
  EXPECT_EQ(world.loop().state().behind, 3);
  world.say("update_weights");
  EXPECT_EQ(world.loop().state().version, 3);
}

TEST(VerbLoop, AStreamThatWouldWaitForEverIsRefused) {
  World world({.is_stream = true, .max_lag = 1});
  for (int64_t step = 0; step < 2; ++step) {
    EXPECT_EQ(world.say("generate", step), "");
    EXPECT_EQ(world.say("train", step), "");
  }
  EXPECT_THAT(world.say("generate", 2),
              HasSubstr("the engines have weights 0, and --max-staleness 1 wants 1 or newer"));
}

TEST(VerbLoop, AStreamIsUpdatedAsOftenAsItCountsOn) {
  World world({.is_stream = true}, {.num_steps = 4, .steps_per_update = 2});
  world.say("generate", 0);
  world.say("train", 0);
  EXPECT_THAT(world.say("update_weights"), HasSubstr("--update-weights-interval"));
  world.say("generate", 1);
  world.say("train", 1);
  EXPECT_EQ(world.say("update_weights"), "");
}

TEST(VerbLoop, AnErrorInAStepEndsTheRunForEverybody) {
  World world;
  world.steps.fails_at = "collect 0";
  EXPECT_EQ(world.say("generate"), "the reward server is gone");
  EXPECT_EQ(world.say("save"), "the reward server is gone");
}

TEST(VerbLoop, CtrlCEndsItBetweenTwoVerbs) {
  World world;
  world.say("generate");
  world.say("train");
  world.steps.is_interrupted_now = true;
  world.join();
  EXPECT_EQ(world.steps.done.back(), "finish 1");
}

TEST(VerbLoop, TheRowOfAStepIsWrittenWhenNobodyAsks) {
  World world;
  world.say("generate");
  world.say("train");
  EXPECT_EQ(world.say("settle"), "");
  EXPECT_EQ(world.steps.done.back(), "row 0");
}

TEST(VerbLoop, TheLastTwoRolloutsAreShown) {
  World world;
  for (int64_t step = 0; step < 3; ++step) {
    world.say("generate", step);
    world.say("train", step);
  }
  EXPECT_EQ(world.loop().rollout(2)->groups.front().ordinal, 2);
  EXPECT_EQ(world.loop().rollout(1)->groups.front().ordinal, 1);
  EXPECT_THROW(world.loop().rollout(0), ConfigError);
  EXPECT_THROW(world.loop().rollout(3), ConfigError);
}

}  // namespace
}  // namespace slime::loop
