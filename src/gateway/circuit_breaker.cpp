#include "gateway/circuit_breaker.h"

#include <algorithm>

namespace slime::gateway {

CircuitBreaker::State CircuitBreaker::state(TimePoint now) const {
  if (!is_open_) return State::kClosed;
  return now < opened_ + config_.open_time ? State::kOpen : State::kHalfOpen;
}

bool CircuitBreaker::allows(TimePoint now) const {
  if (!config_.is_on) return true;
  switch (state(now)) {
    case State::kClosed:
      return true;
    case State::kOpen:
      return false;
    case State::kHalfOpen:
      return num_trials_ == 0;
  }
  return false;
}

void CircuitBreaker::begin(TimePoint now) {
  if (state(now) == State::kHalfOpen) ++num_trials_;
}

void CircuitBreaker::leave(TimePoint now) {
  if (state(now) == State::kHalfOpen) num_trials_ = std::max(0, num_trials_ - 1);
}

void CircuitBreaker::succeed(TimePoint now) {
  leave(now);
  if (state(now) == State::kClosed) {
    num_failures_ = 0;
  } else if (state(now) == State::kHalfOpen && ++num_successes_ >= config_.successes_to_close) {
    is_open_ = false;
    num_failures_ = 0;
  }
}

void CircuitBreaker::fail(TimePoint now) {
  if (!config_.is_on) return;
  switch (state(now)) {
    case State::kClosed:
      if (num_failures_ == 0 || now - first_failure_ > config_.failure_window) {
        num_failures_ = 0;
        first_failure_ = now;
      }
      if (++num_failures_ >= config_.failures_to_open) open(now);
      break;
    case State::kOpen:  // it went before the breaker opened
      break;
    case State::kHalfOpen:
      open(now);
      break;
  }
}

void CircuitBreaker::open(TimePoint now) {
  is_open_ = true;
  opened_ = now;
  num_trials_ = 0;
  num_successes_ = 0;
  num_failures_ = 0;
}

}  // namespace slime::gateway
