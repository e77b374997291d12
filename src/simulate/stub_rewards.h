#pragma once

/// Rewards that take time: so many threads, a queue before them. Some fail, some hang until nobody
/// waits for them.

#include <deque>
#include <memory>

#include "simulate/chance.h"
#include "simulate/event_queue.h"

namespace slime::simulate {

class StubRewards {
 public:
  struct Config {
    int64_t num_threads = 2;
    double mean_seconds = 0.01;
    double hangs = 0;  // probability
  };
  /// `queue` outlives the object, and calls it only between attach() and detach().
  StubRewards(EventQueue& queue, Config config, uint64_t seed)
      : queue_(queue), config_(config), chance_(seed) {}

  void begin(rollout::ScoreJob job);
  void forget() { waiting_.clear(); }

 private:
  void take();
  void run(const std::shared_ptr<const rollout::ScoreJob>& job, bool hangs);

  EventQueue& queue_;
  const Config config_;
  Chance chance_;
  std::deque<rollout::ScoreJob> waiting_;
  int64_t num_running_ = 0;
};

}  // namespace slime::simulate
