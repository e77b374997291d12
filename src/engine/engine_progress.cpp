#include "engine/engine_progress.h"

#include <utility>

namespace slime::engine {

EngineProgress::EngineProgress(const Clock& clock, std::function<void(Activity)> on_activity)
    : clock_(clock),
      on_activity_(std::move(on_activity)),
      window_start_(clock.now()),
      last_step_(window_start_) {}

void EngineProgress::step_ended() {
  ++steps_done_;
  const std::lock_guard lock(mutex_);
  last_step_ = clock_.now();
  waits_since_ = last_step_;
}

void EngineProgress::tell_activity(const Counts& counts) {
  const Activity now = counts.has_work    ? Activity::kGenerates
                       : counts.is_paused ? Activity::kPaused
                                          : Activity::kIdle;
  if (now == activity_) return;
  activity_ = now;
  if (on_activity_) on_activity_(now);
}

void EngineProgress::update(const Counts& counts, int64_t num_sampled) {
  tell_activity(counts);
  const Clock::TimePoint now = clock_.now();
  window_tokens_ += num_sampled;
  const double seconds = seconds_between(window_start_, now);
  if (seconds >= 1.0) {
    tokens_per_second_ = static_cast<double>(window_tokens_) / seconds;
    window_tokens_ = 0;
    window_start_ = now;
  }
  const std::lock_guard lock(mutex_);
  load_.num_running = counts.num_running;
  load_.num_waiting = counts.num_waiting;
  load_.num_kv_tokens = counts.num_kv_tokens;
  load_.num_kv_tokens_used = counts.num_kv_tokens_used;
  load_.num_kv_tokens_given_back = counts.num_kv_tokens_given_back;
  load_.steps_done = steps_done_;
  load_.decode_tokens_per_second = tokens_per_second_;
  load_.drafts = counts.drafts;
  load_.is_paused = counts.is_paused;
  if (!counts.has_work) {
    waits_since_.reset();
  } else if (!waits_since_) {
    waits_since_ = now;
  }
}

EngineLoad EngineProgress::load() const {
  const std::lock_guard lock(mutex_);
  EngineLoad load = load_;
  const Clock::TimePoint now = clock_.now();
  load.seconds_since_step = seconds_between(last_step_, now);
  if (waits_since_) load.seconds_without_progress = seconds_between(*waits_since_, now);
  return load;
}

}  // namespace slime::engine
