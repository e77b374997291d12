#include "rollout/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <future>
#include <stdexcept>

namespace slime::rollout {

namespace {

/// Of a round. Longer than a moment, so that alarms of rewards that came are forgotten some time.
constexpr std::chrono::milliseconds kRoundTime{100};

}  // namespace

void Rounds::at(Clock::TimePoint when, std::function<void()> call) {
  timers_.emplace(std::pair(std::max(when, now_), num_timers_++), std::move(call));
}

void Rounds::score(ScoreJob job) {
  const auto reward = std::make_shared<Reward>(Reward{.job = std::move(job), .value = {}});
  rewards_.push_back(reward);
  boost::asio::post(*threads_, [this, reward] {
    if (reward->job.stop.stop_requested()) return;
    Expected<json::value> value = reward->job.score(reward->job.sample);
    {
      const std::lock_guard lock(mutex_);
      reward->value = std::move(value);
      ++num_rewards_ended_;
    }
    reward_ended_.notify_one();
  });
}

void Rounds::attach(std::function<bool()> run_handlers) {
  run_handlers_ = std::move(run_handlers);
  threads_.emplace(static_cast<std::size_t>(config_.reward_threads));
}

void Rounds::detach() {
  run_handlers_ = nullptr;
  threads_->stop();
  threads_->join();
  threads_.reset();
  rewards_.clear();
  timers_.clear();
}

bool Rounds::advance() {
  if (run_handlers()) return true;
  if (engine_.has_open()) {
    run_round();
    return true;
  }
  if (!rewards_.empty()) {
    tell(std::exchange(rewards_, {}));
    return true;
  }
  return call_next_timer();
}

void Rounds::pass_beside(int64_t num_rounds, const std::function<void()>& work) {
  // Its destructor waits, also when the work throws.
  std::future<void> rounds =
      std::async(std::launch::async, [this, num_rounds] { pass(num_rounds); });
  work();
  rounds.get();
}

void Rounds::pass(int64_t num_rounds) {
  settle();
  for (int64_t i = 0; i < num_rounds; ++i) {
    run_round();
    settle();
  }
}

void Rounds::settle() {
  while (run_handlers()) {
  }
}

void Rounds::run_round() {
  const Rewards rewards = std::exchange(rewards_, {});
  // Handlers have nothing to do while somebody waits here, unless a stop flag is set: how long it
  // takes changes nothing.
  engine_.run_round([this] { run_handlers(); });
  settle();
  tell(rewards);
  pass_time();
}

bool Rounds::are_there_within(const Rewards& rewards, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return reward_ended_.wait_for(lock, limit, [&rewards] {
    return std::ranges::all_of(rewards, [](const auto& reward) {
      return reward->value || reward->job.stop.stop_requested();
    });
  });
}

void Rounds::tell(const Rewards& rewards) {
  const auto num_ended = [this] {
    const std::lock_guard lock(mutex_);
    return num_rewards_ended_;
  };
  const SystemClock clock;
  auto since = clock.now();
  for (int64_t known = num_ended(); !are_there_within(rewards, kLookInterval);) {
    run_handlers();
    if (const int64_t ended = num_ended(); ended != known) {
      known = ended;
      since = clock.now();
    }
    if (clock.now() - since > config_.patience) {
      throw std::runtime_error(
          fmt::format("no reward came for {} s, and --deterministic-schedule waits for each: a "
                      "reward that does not end ends the run",
                      config_.patience.count()));
    }
  }
  for (const auto& reward : rewards) {
    std::optional<Expected<json::value>> value;
    {
      const std::lock_guard lock(mutex_);
      value = std::move(reward->value);
    }
    if (!value) continue;  // nobody waits for it any more
    reward->job.taken();
    reward->job.answer(std::move(*value));
  }
}

void Rounds::pass_time() {
  const Clock::TimePoint until = now_ + kRoundTime;
  while (!timers_.empty() && timers_.begin()->first.first <= until) call_next_timer();
  now_ = until;
}

bool Rounds::call_next_timer() {
  if (timers_.empty()) return false;
  const auto next = timers_.begin();
  now_ = next->first.first;
  const std::function<void()> call = std::move(next->second);
  timers_.erase(next);
  call();
  return true;
}

}  // namespace slime::rollout
