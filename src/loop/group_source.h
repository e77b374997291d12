#pragma once

/// Where the groups of a step come from: a rollout, rows of a data set, or the dump of an earlier
/// run. Siblings behind one call, chosen once (loop/stations.cpp).

#include <cstdint>
#include <optional>
#include <vector>

#include "core/sample.h"
#include "loop/metrics.h"
#include "loop/untrained_tokens.h"

namespace slime::loop {

/// What one step is trained on.
struct Collected {
  std::vector<Group> groups;
  Metrics metrics;  // rollout/dynamic_filter/drop_<reason>, ...
  /// Of sampled groups: tokens that are sampled and not in them, by cause (untrained_tokens.h).
  std::optional<UntrainedTokens> untrained = {};
  int64_t generated_tokens = 0;  // all new ones, trained on or not
  double seconds = 0;            // of the whole call
  bool data_ended = false;       // there are fewer groups than a step has
  bool is_logged = false;        // by a function of the user's: nobody else writes metrics of it
};

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  /// The groups of step `step`; steps are asked for in order, each once. Empty when the data has
  /// ended. Throws ConfigError when no group can be made.
  virtual Collected take(int64_t step) = 0;
};

}  // namespace slime::loop
