#pragma once

/// Histogram of latencies in seconds, as Prometheus has them: how many were at most so long, for a few
/// bounds. Any thread.

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace slime::engine {

class LatencyHistogram {
 public:
  /// `bounds`: ascending, and there for as long as the object.
  explicit LatencyHistogram(std::span<const double> bounds);

  void observe(double seconds, std::int64_t count = 1);

  struct Counts {
    std::vector<std::int64_t> at_most;  // per bound
    std::int64_t all = 0;
    double sum_seconds = 0;
  };
  Counts counts() const;
  std::span<const double> bounds() const { return bounds_; }

 private:
  const std::span<const double> bounds_;
  std::vector<std::atomic<std::int64_t>> counts_;  // between bounds, and beyond the last one
  std::atomic<double> sum_{0};
};

}  // namespace slime::engine
