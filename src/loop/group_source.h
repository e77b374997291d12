#pragma once

/// The source of a step's groups: a rollout, rows of a data set, or the dump of an earlier run.
/// Siblings behind one call, chosen once (loop/stations.cpp).

#include <cstdint>

#include "report/collected.h"

namespace slime::loop {

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  /// The groups of step `step`; steps are asked for in order, each once. Empty when the data has
  /// ended. Throws ConfigError when no group can be made.
  virtual report::Collected take(int64_t step) = 0;
};

}  // namespace slime::loop
