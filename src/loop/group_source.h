#pragma once

/// The source of a step's groups: a rollout, a function of the user's, rows of a data set, or the dump
/// of an earlier run. Siblings behind one interface, chosen once (loop/stations.cpp).
///
///   every source:    take(0) -> batch_is_made -> while_training -> take(1) -> ...
///   asynchronous:    start_stream -> the same; groups are sampled beside all of it
///   a step whose groups are not trained: abandon, where the source has them given out again

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "loop/sampled_step.h"
#include "report/collected.h"
#include "rollout/rollout.h"
#include "setup/run_schedule.h"

namespace slime::loop {

/// What a checkpoint has of a source: groups that are not final, and tokens that were sampled.
struct OpenGroups {
  std::vector<std::shared_ptr<void>> locks;  // as long as they live the source stands still
  rollout::Snapshot rollout;
  std::vector<Group> taken;  // by a function, which neither returned them nor gave them back
  std::optional<SampledStep> sampled;  // a step that nobody has taken
  std::vector<Group> abandoned;        // of a step that was abandoned

  /// To be given out again.
  std::vector<Group> all() const;
};

/// Of a rollout, which stands still meanwhile.
OpenGroups open_groups_of(rollout::Rollout& rollout);

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  /// The groups of step `step`; steps are asked for in order, each once. Empty when the data has
  /// ended. Throws ConfigError when no group can be made, StepAbandoned at Ctrl-C.
  virtual report::Collected take(int64_t step) = 0;
  /// Groups that were taken and are not trained. False: the source does not keep them.
  virtual bool abandon(const std::vector<Group>& /*groups*/) { return false; }

  /// Groups are sampled beside training from here on; `version`: of the engines' weights. Called once,
  /// before the first take(), in asynchronous runs.
  virtual void start_stream(const setup::RunSchedule& /*schedule*/, WeightVersion /*version*/) {
    throw BugError("groups that nobody draws are no stream");
  }
  /// The batch of the step that was taken last is made; its groups may change no more.
  virtual void batch_is_made() {}
  /// Calls `train`, and draws beside it as far as the schedule says.
  virtual void while_training(const std::function<void()>& train) { train(); }
  /// Until no function of the user's is under way; no longer than `gives_up` is false. Whether none is.
  virtual bool wait(const std::atomic<bool>& /*gives_up*/) { return true; }

  /// Whether groups are sampled here, and also between two calls of take().
  virtual bool draws() const { return false; }
  virtual bool is_ahead() const { return false; }
  /// The rollout whose requests are in the engines between two steps; null: nothing is.
  virtual rollout::Rollout* stream() { return nullptr; }
  /// For evaluation: draws and scores groups that are no prompts of training.
  virtual rollout::Rollout& rollout() { throw BugError("a run that draws nothing has no rollout"); }

  virtual OpenGroups open_groups() { return {}; }
  /// Of the open groups, while none is open: tokens that were sampled.
  virtual rollout::Snapshot between_steps() { return {}; }
};

}  // namespace slime::loop
