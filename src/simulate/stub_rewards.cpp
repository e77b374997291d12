#include "simulate/stub_rewards.h"

#include <utility>

namespace slime::simulate {

namespace {

/// How often a reward that hangs looks whether anybody still waits.
constexpr double kLookSeconds = 0.1;

}  // namespace

void StubRewards::begin(rollout::ScoreJob job) {
  waiting_.push_back(std::move(job));
  take();
}

void StubRewards::take() {
  while (num_running_ < config_.num_threads && !waiting_.empty()) {
    auto job = std::make_shared<const rollout::ScoreJob>(std::move(waiting_.front()));
    waiting_.pop_front();
    if (job->stop.stop_requested()) continue;
    ++num_running_;
    job->taken();
    run(job, chance_.happens(config_.hangs));
  }
}

void StubRewards::run(const std::shared_ptr<const rollout::ScoreJob>& job, bool hangs) {
  const double seconds = hangs ? kLookSeconds : chance_.waits(config_.mean_seconds);
  queue_.at(queue_.now() + to_duration(seconds), [this, job, hangs] {
    if (hangs && !job->stop.stop_requested()) return run(job, true);
    job->answer(job->score(job->sample));
    --num_running_;
    take();
  });
}

}  // namespace slime::simulate
