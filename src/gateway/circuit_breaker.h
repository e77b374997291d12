#pragma once

/// Circuit breaker of one worker: after so many failures in a row it gets nothing for a while, then
/// one request as a trial, and everything again when trials succeed.
///
///              failures            time               successes
///   kClosed ------------> kOpen ----------> kHalfOpen ----------> kClosed
///                           ^                   | failure
///                           +-------------------+
///
/// A failure is of the worker: no connection, no complete answer, a status of 500 and above. What
/// a client does wrong (4xx) counts as a success: the worker is there and answers.

#include <chrono>

namespace slime::gateway {

struct BreakerConfig {
  bool is_on = true;
  int failures_to_open = 10;
  int successes_to_close = 3;
  std::chrono::milliseconds open_time{60'000};
  std::chrono::milliseconds failure_window{120'000};  // older ones are forgotten
};

class CircuitBreaker final {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class State { kClosed, kOpen, kHalfOpen };

  explicit CircuitBreaker(const BreakerConfig& config) : config_(config) {}

  State state(TimePoint now) const;
  /// Whether a request may go to the worker now.
  bool allows(TimePoint now) const;

  /// A request goes. It ends by one of the next three.
  void begin(TimePoint now);
  void succeed(TimePoint now);
  void fail(TimePoint now);
  /// Nothing is known of the worker: the client went away.
  void leave(TimePoint now);

 private:
  void open(TimePoint now);

  BreakerConfig config_;
  bool is_open_ = false;
  TimePoint opened_{};
  int num_failures_ = 0;  // in a row, the first of them at first_failure_
  TimePoint first_failure_{};
  int num_trials_ = 0;  // under way; of a breaker that is open, one at a time
  int num_successes_ = 0;
};

}  // namespace slime::gateway
