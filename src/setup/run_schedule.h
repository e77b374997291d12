#pragma once

/// Schedule of a run: its rollout steps, and the events after each.

#include <cstdint>
#include <optional>
#include <string>

#include "core/sample.h"
#include "setup/periodic.h"

namespace slime::setup {

struct RunSchedule {
  int64_t first_step = 0;                // 0, or the one after the checkpoint the run goes on from
  int64_t num_steps = 0;                 // of the whole run: steps are [first_step, num_steps)
  std::optional<int64_t> eval_interval;  // none: no evaluation
  std::optional<int64_t> save_interval;  // none: the last one only
  std::optional<EpochRows> epoch;        // of a run whose length was given in epochs
  bool skips_first_evaluation = false;
  /// The last evaluation that was due before `first_step` has no row: it was lost with its process.
  bool lost_evaluation = false;
  int64_t steps_per_update = 1;  // of the engines' weights

  bool publishes_after(int64_t step) const { return (step + 1) % steps_per_update == 0; }

  /// What the engines' weights are called at the first step, when they had version `saved` as the
  /// checkpoint was written: weights that were trained and not published then are published now.
  /// `was_published`: by the run that wrote it, whose interval may have been another.
  static WeightVersion version_from(WeightVersion saved, bool was_published) {
    return saved + (was_published ? 0 : 1);
  }

  bool evaluates_before_training() const {
    return lost_evaluation || (eval_interval && first_step == 0 && !skips_first_evaluation);
  }
  /// The last step before `first_step` behind which an evaluation was due: -1 for the one before
  /// training, nothing where none was.
  std::optional<int64_t> last_evaluation_due() const {
    for (int64_t step = first_step - 1; eval_interval && step >= 0; --step)
      if (evaluates_after(step)) return step;
    if (!eval_interval || skips_first_evaluation || first_step == 0) return std::nullopt;
    return -1;
  }
  bool evaluates_after(int64_t step) const {
    return is_due(step, {.interval = eval_interval, .epoch = epoch, .num_rollouts = num_steps});
  }
  /// The last one is saved with or without an interval.
  bool saves_after(int64_t step) const {
    return is_due(step, {.interval = save_interval, .epoch = epoch, .num_rollouts = num_steps}) ||
           step + 1 == num_steps;
  }
  /// "every 10 rollouts and at the end"; "only at the end (...)" where nothing is saved before.
  std::string when_saved() const;
};

}  // namespace slime::setup
