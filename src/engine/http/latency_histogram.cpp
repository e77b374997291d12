#include "engine/http/latency_histogram.h"

#include <algorithm>

namespace slime::engine {

LatencyHistogram::LatencyHistogram(std::span<const double> bounds)
    : bounds_(bounds), counts_(bounds.size() + 1) {}

void LatencyHistogram::observe(double seconds, std::int64_t count) {
  const auto bound = std::ranges::lower_bound(bounds_, seconds);
  counts_[static_cast<std::size_t>(bound - bounds_.begin())].fetch_add(count);
  sum_.fetch_add(seconds * static_cast<double>(count));
}

LatencyHistogram::Counts LatencyHistogram::counts() const {
  Counts counts;
  for (const std::atomic<std::int64_t>& count : counts_) {
    counts.all += count.load();
    if (counts.at_most.size() < bounds_.size()) counts.at_most.push_back(counts.all);
  }
  counts.sum_seconds = sum_.load();
  return counts;
}

}  // namespace slime::engine
