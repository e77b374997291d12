#include "rollout/runtime.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace slime::rollout {

namespace asio = boost::asio;

Runtime::Runtime(int num_reward_threads, Driver* driver)
    : driver_(driver), more_to_come_(asio::make_work_guard(context_)) {
  if (!is_driven()) rewards_.emplace(static_cast<std::size_t>(num_reward_threads));
}

Runtime::~Runtime() {
  if (rewards_) rewards_->stop();
}

void Runtime::begin(Events events) {
  events_ = std::move(events);
  if (is_driven()) {
    driver_->attach([this] { return run_ready(); });
  } else {
    thread_ = std::thread([this] { run(); });
  }
}

void Runtime::end() {
  more_to_come_.reset();
  if (!is_driven()) {
    thread_.join();
    return;
  }
  // A driver that has nothing more keeps what it was given; whoever owns it can see that.
  while (!context_.stopped() && driver_->advance()) {
  }
  driver_->detach();
}

void Runtime::run() {
  for (;;) {
    try {
      context_.run();
      return;
    } catch (...) {
      events_.on_exception();
    }
  }
}

bool Runtime::run_ready() {
  try {
    events_.on_turn();
    return context_.poll() > 0;
  } catch (...) {
    events_.on_exception();
    return true;
  }
}

Clock::TimePoint Runtime::now() const { return is_driven() ? driver_->now() : SystemClock().now(); }

void Runtime::wake_at(const std::shared_ptr<asio::steady_timer>& timer, Clock::TimePoint when) {
  if (!is_driven()) {
    using Ticks = std::chrono::steady_clock::duration;
    timer->expires_at(std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<Ticks>(when.time_since_epoch())));
    return;
  }
  driver_->at(when, [waiting = std::weak_ptr(timer)] {
    if (const auto timer = waiting.lock()) timer->cancel();
  });
}

void Runtime::score(ScoreJob job) {
  if (is_driven()) return driver_->score(std::move(job));
  asio::post(*rewards_, [job = std::move(job)] {
    if (job.stop.stop_requested()) return;
    job.taken();
    job.answer(job.score(job.sample));
  });
}

}  // namespace slime::rollout
