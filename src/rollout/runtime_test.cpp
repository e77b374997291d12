#include "rollout/runtime.h"

#include <gtest/gtest.h>

#include <map>

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
class PunctualEngine final : public engine::EngineClient {
 public:
  explicit PunctualEngine(Driver& driver) : driver_(driver) {}

  engine::RequestHandle submit(engine::GenerateRequest, OnUpdate on_update) override {
    const auto handle = static_cast<engine::RequestHandle>(++num_submitted_);
    requests_.emplace(handle, std::move(on_update));
    if (answers)
      driver_.at(driver_.now() + std::chrono::seconds(1), [this, handle] { answer(handle, {}); });
    return handle;
  }
  Expected<void> abort(engine::RequestHandle request) override {
    driver_.at(driver_.now(), [this, request] {
      answer(request, engine::aborted(engine::FinishReason::Cause::kRequested, "aborted"));
    });
    return {};
  }
  Expected<void> abort_prefix(const std::string&) override { return {}; }
  Expected<void> abort_all() override { return {}; }
  Expected<void> pause(engine::PauseMode) override { return {}; }
  Expected<void> resume() override { return {}; }
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override { return {}; }
  Expected<void> wake() override { return {}; }
  Expected<void> update_weights(const engine::WeightUpdate&) override { return {}; }
  WeightVersion weight_version() const override { return 0; }
  Expected<engine::EngineLoad> load() const override { return engine::EngineLoad{}; }

  bool answers = true;

 private:
  void answer(engine::RequestHandle handle, engine::FinishReason finish) {
    const auto request = requests_.extract(handle);
    if (request.empty()) return;
    engine::GenerateUpdate update;
    update.output_ids = {2};
    update.output_log_probs = {-0.5F};
    update.versions = {{0, 1}};
    update.finish = std::move(finish);
    request.mapped()(std::move(update));
  }

  Driver& driver_;
  uint64_t num_submitted_ = 0;
  std::map<engine::RequestHandle, OnUpdate> requests_;
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
      const Rollout::Lease lease(rollout);
      EXPECT_LE(lease.snapshot().open_groups.size(), 3u);
    }
    rollout.release(step + 1);
  }
}

}  // namespace
}  // namespace slime::rollout
