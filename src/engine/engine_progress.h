#pragma once

/// Progress of an engine: load, throughput, and the time since the last step, from which health is
/// judged. Told by the engine's thread, read by any.

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "core/clock.h"
#include "engine/client.h"
#include "engine/engine_config.h"

namespace slime::engine {

class EngineProgress {
 public:
  /// `clock` outlives the object. `on_activity`: EngineConfig::on_activity.
  explicit EngineProgress(const Clock& clock, std::function<void(Activity)> on_activity = {});

  // The engine's thread.

  struct Counts {
    int64_t num_running = 0;
    int64_t num_waiting = 0;
    int64_t num_kv_tokens_used = 0;
    int64_t num_kv_tokens = 0;
    int64_t num_kv_tokens_given_back = 0;
    DraftCounts drafts = {};
    bool is_paused = false;
    bool has_work = false;  // a step is in flight, or one may begin
  };
  void step_ended();
  /// `num_sampled`: tokens since the last call.
  void update(const Counts& counts, int64_t num_sampled = 0);

  // Any thread.

  /// Without the requests that the engine has not read yet.
  EngineLoad load() const;

 private:
  void tell_activity(const Counts& counts);

  const Clock& clock_;
  const std::function<void(Activity)> on_activity_;
  Activity activity_ = Activity::kIdle;
  int64_t steps_done_ = 0;
  int64_t window_tokens_ = 0;  // sampled since window_start_
  double tokens_per_second_ = 0;
  Clock::TimePoint window_start_;

  mutable std::mutex mutex_;
  EngineLoad load_;             // guarded by mutex_
  Clock::TimePoint last_step_;  // guarded by mutex_
  /// Guarded by mutex_. For the next step to end, while there is work.
  std::optional<Clock::TimePoint> waits_since_;
};

}  // namespace slime::engine
