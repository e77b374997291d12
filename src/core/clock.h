#pragma once

/// Time as an object that is passed in: the control plane never asks the system
/// for it, so that a simulator can.

#include <chrono>

namespace slime {

class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  using TimePoint = std::chrono::time_point<Clock, Duration>;

  virtual ~Clock() = default;
  /// Monotonic.
  virtual TimePoint now() const = 0;
  /// Seconds since 1970, for what people read and for event files.
  virtual double unix_seconds() const = 0;
};

/// The machine's clocks.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
  double unix_seconds() const override;
};

/// Of a flag in seconds.
inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

inline double seconds_between(Clock::TimePoint from, Clock::TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace slime
