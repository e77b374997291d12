#pragma once

/// Periods of events that happen every so many rollouts, and the step axis of plots (spec sections
/// 17.7 and 19.3).

#include <cstdint>
#include <optional>

namespace slime::setup {

/// Rows of an epoch, and of a rollout, which may have rows of two epochs.
struct EpochRows {
  int64_t in_epoch = 0;
  int64_t in_rollout = 0;

  /// Whether the last row of an epoch is in the rollout before `done` ones were.
  bool ends_at(int64_t done) const {
    return done * in_rollout / in_epoch > (done - 1) * in_rollout / in_epoch;
  }
};

struct Period {
  std::optional<int64_t> interval;  // rollouts; none: never due
  /// Of a run whose length was given in epochs: due at their ends too.
  std::optional<EpochRows> epoch;
  std::optional<int64_t> num_rollouts;  // of the run: due after the last one too
};

/// After rollout `rollout_id`, counted from 0.
inline bool is_due(int64_t rollout_id, const Period& period) {
  if (!period.interval) return false;
  const int64_t done = rollout_id + 1;
  return done % *period.interval == 0 || (period.epoch && period.epoch->ends_at(done)) ||
         (period.num_rollouts && done == *period.num_rollouts);
}

/// The rollout itself, or the optimizer steps before it (--wandb-always-use-train-step).
inline int64_t plotted_step(int64_t rollout_id, bool counts_train_steps,
                            int64_t samples_per_rollout, int64_t global_batch_size) {
  return counts_train_steps ? rollout_id * samples_per_rollout / global_batch_size : rollout_id;
}

}  // namespace slime::setup
