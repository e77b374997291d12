#pragma once

/// Runs of the same work, beside core/best_seconds.h: as many as fit into a time, or each run's
/// seconds where the median counts.

#include <algorithm>
#include <vector>

#include "core/best_seconds.h"
#include "core/clock.h"

namespace slime::bench {

/// Seconds of the fastest of as many runs as fit into the time, three at least.
template <typename Work>
double best_seconds_within(double budget_seconds, const Work& work) {
  double best = best_seconds(1, work), spent = best;
  for (int i = 1; i < 3 || spent < budget_seconds; ++i) {
    const double seconds = best_seconds(1, work);
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

/// Seconds of each of `repeats` runs, the fastest first.
template <typename Work>
std::vector<double> sorted_seconds(int repeats, const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(best_seconds(1, work));
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

/// The middle one, the later of the two middle ones; 0 of none.
inline double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace slime::bench
