#include "rollout/runtime.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/scripted_engine.h"
#include "rollout/rollout.h"
#include "rollout/test_world.h"

namespace slime::rollout {
namespace {

/// Time is that of the next thing to happen; rewards take as long as `reward_seconds` says.
class Script final : public Driver {
 public:
  Clock::TimePoint now() const override { return now_; }
  void at(Clock::TimePoint when, std::function<void()> call) override {
    events_.emplace(std::max(when, now_), std::move(call));
  }
  void score(ScoreJob job) override {
    job.taken();
    at(now_ + reward_time, [job = std::move(job)] { job.answer(job.score(job.sample)); });
  }
  void attach(std::function<bool()> run_handlers) override { run_ = std::move(run_handlers); }
  void detach() override {
    run_ = nullptr;
    events_.clear();
  }
  bool advance() override {
    if (run_ && run_()) return true;
    if (events_.empty()) return false;
    const auto next = events_.begin();
    now_ = next->first;
    const std::function<void()> call = std::move(next->second);
    events_.erase(next);
    call();
    return true;
  }

  Clock::Duration reward_time = std::chrono::seconds(1);

 private:
  Clock::TimePoint now_{};
  std::multimap<Clock::TimePoint, std::function<void()>> events_;
  std::function<bool()> run_;
};

/// Answers each request a second after it came with one token, or only when it is aborted.
class PunctualEngine final : public engine::ScriptedEngine {
 public:
  explicit PunctualEngine(Driver& driver)
      : ScriptedEngine([](engine::ScriptedRequest& running, WeightVersion) {
          running.draw(2, -0.5F, 0);
          running.finish(engine::FinishReason::Kind::kStop);
        }),
        driver_(driver) {
    version = 0;
  }

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override {
    const engine::RequestHandle handle =
        ScriptedEngine::submit(std::move(request), std::move(on_update));
    if (answers)
      driver_.at(driver_.now() + std::chrono::seconds(1), [this, handle] { step_of(handle); });
    return handle;
  }
  Expected<void> abort(engine::RequestHandle handle) override {
    driver_.at(driver_.now(), [this] { end_aborted(); });
    return ScriptedEngine::abort(handle);
  }

  bool answers = true;

 private:
  Driver& driver_;
};

TEST(DrivenRollout, TakesTheTimeThatItsDriverSays) {
  Script script;
  PunctualEngine engine(script);
  World world;  // six samples a step, four at once: two rounds of a second, and rewards
  Rollout rollout(engine, world.config, world.hooks, &script);
  rollout.open_step({.rules = world.rules});
  EXPECT_EQ(take_step(rollout).groups.size(), 3u);
  EXPECT_EQ(script.now().time_since_epoch(), std::chrono::seconds(3));
}

TEST(DrivenRollout, RewardsMeetTheirDeadlinesInThatTime) {
  Script script;
  script.reward_time = std::chrono::seconds(3600);
  PunctualEngine engine(script);
  World world;
  world.config.max_failed_groups = 0;
  Rollout rollout(engine, world.config, world.hooks, &script);
  rollout.open_step({.rules = world.rules});
  EXPECT_THROW(take_step(rollout), ConfigError);
  EXPECT_EQ(script.now().time_since_epoch(), std::chrono::seconds(31));
}

TEST(DrivenRollout, AWaitForWhatNeverComesIsABug) {
  Script script;
  PunctualEngine engine(script);
  engine.answers = false;
  World world;
  Rollout rollout(engine, world.config, world.hooks, &script);
  rollout.open_step({.rules = world.rules});
  EXPECT_THROW(take_step(rollout), BugError);
}

TEST(DrivenRollout, AStreamIsHeldReleasedAndLent) {
  Script script;
  PunctualEngine engine(script);
  World world;
  Rollout rollout(engine, world.config, world.hooks, &script);
  rollout.open_stream(
      {.staleness = {.groups_per_step = 3, .max_lag = 1}, .num_steps = 4, .rules = world.rules});
  for (int64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(take_step(rollout).groups.size(), 3u);
    rollout.hold(/*interrupts=*/false);
    {
      const Rollout::StateLock lock(rollout);
      EXPECT_LE(lock.snapshot().open_groups.size(), 3u);
    }
    rollout.release(step + 1);
  }
}

}  // namespace
}  // namespace slime::rollout
