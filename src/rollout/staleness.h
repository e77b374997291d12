#pragma once

/// Steps, weight versions and lags, as numbers (docs/how/asynchronous_training.md).
///
/// Step s trains `groups_per_step` groups. The engine gets new weights after steps k - 1, 2k - 1, ...
/// (k = steps_per_update), which is a new version each. The lag of something sampled by version v in
/// step s is the number of updates between it and the newest that were published before s.

#include <cstdint>

#include "core/sample.h"

namespace slime::rollout {

/// Of a group that would be trained later than `max_lag` allows.
enum class StalePolicy {
  kWait,     // a batch waits for groups that would be too old for the next one
  kDrop,     // it is left out, for the reason "stale"
  kRetry,    // it is sampled again from the prompt
  kCorrect,  // it is trained: the loss corrects for the distance
};

struct Staleness {
  int64_t groups_per_step = 1;   // B >= 1
  int64_t steps_per_update = 1;  // k >= 1
  int64_t max_lag = 0;           // K >= 0, in updates
  StalePolicy policy = StalePolicy::kWait;
  /// The engine has this version when this step begins.
  int64_t first_step = 0;
  WeightVersion first_version = 0;

  /// The newest version published when step `step` >= first_step begins.
  WeightVersion version_at(int64_t step) const {
    return first_version + step / steps_per_update - first_step / steps_per_update;
  }
  int64_t lag(int64_t step, WeightVersion sampled_by) const {
    return version_at(step) - sampled_by;
  }

  /// The last step in which something sampled by `version` may be trained.
  int64_t last_step_for(WeightVersion version) const {
    return (version - first_version + max_lag + 1 + first_step / steps_per_update) *
               steps_per_update -
           1;
  }

  /// The step that trains a group which has `num_ahead` others of this process before it.
  int64_t step_behind(int64_t num_ahead) const { return first_step + num_ahead / groups_per_step; }

  /// May a group be begun with weights `version`, when `num_ahead` others are trained before it? It
  /// is then trained in time, if groups are trained in the order in which they were begun.
  bool may_begin(int64_t num_ahead, WeightVersion version) const {
    return step_behind(num_ahead) <= last_step_for(version);
  }
};

}  // namespace slime::rollout
