#pragma once

/// Simulated time: what is to happen, and when. Time is that of the event that happens; nobody
/// sleeps.

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/clock.h"
#include "rollout/runtime.h"

namespace slime::simulate {

/// The clock of a simulation.
class SimulatedClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  double unix_seconds() const override { return seconds_between({}, now_); }
  void set(TimePoint now) { now_ = now; }

 private:
  TimePoint now_{};
};

inline Clock::Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::Duration>(std::chrono::duration<double>(seconds));
}

/// Drives a rollout, and everything else. Events of one moment happen in the order in which they
/// were asked for.
class EventQueue final : public rollout::Driver {
 public:
  /// Rewards are computed by `score`. `before_event` is called before each event; what
  /// it throws ends the wait. Both may be empty.
  explicit EventQueue(std::function<void(rollout::ScoreJob)> score = {},
                      std::function<void()> before_event = {}, int64_t most_turns = kMostTurns)
      : score_(std::move(score)), before_event_(std::move(before_event)), most_turns_(most_turns) {}

  const SimulatedClock& clock() const { return clock_; }
  double seconds() const { return clock_.unix_seconds(); }
  int64_t num_events() const { return num_events_; }

  /// An event of a station, so many seconds from now.
  void after(double seconds, std::function<void()> call);
  /// Somebody is busy for so long; everything else goes on.
  void pass(double seconds);
  /// Longer than any run of the tests takes: from then on nothing is to come, so that one which would
  /// go on for ever ends too.
  static constexpr int64_t kMostTurns = 300'000;

  /// Nothing ends a wait any more: what is under way is to come back.
  void set_undisturbed() { before_event_ = nullptr; }

  Clock::TimePoint now() const override { return clock_.now(); }
  void at(Clock::TimePoint when, std::function<void()> call) override;
  void score(rollout::ScoreJob job) override { score_(std::move(job)); }
  void attach(std::function<bool()> run_handlers) override;
  void detach() override;
  bool advance() override;

 private:
  struct Event {
    std::function<void()> call;
    bool is_of_rollout = false;
  };
  void add(Clock::TimePoint when, Event event);
  bool run_handlers();
  void happen();

  SimulatedClock clock_;
  std::function<void(rollout::ScoreJob)> score_;
  std::function<void()> before_event_;
  const int64_t most_turns_;
  std::function<bool()> run_handlers_;
  std::map<std::pair<Clock::TimePoint, int64_t>, Event> events_;  // by time and number
  int64_t num_asked_ = 0;
  int64_t num_events_ = 0;
  int64_t num_turns_ = 0;
};

}  // namespace slime::simulate
