#pragma once

/// Best time of repeated runs of the same work.

#include <algorithm>
#include <limits>

#include "core/clock.h"

namespace slime {

/// Seconds of the fastest of `repeats` runs, at least one.
template <typename Work>
double best_seconds(int repeats, const Work& work) {
  const SystemClock clock;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto start = clock.now();
    work();
    best = std::min(best, seconds_between(start, clock.now()));
  }
  return best;
}

}  // namespace slime
