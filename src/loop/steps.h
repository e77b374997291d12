#pragma once

/// The verbs of a run's step, which the loops put into their orders.
///
/// A run does them with its stations (loop/station_steps.h), a simulator with stations that only
/// take time; the loops are the same.

#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/sample.h"
#include "report/collected.h"
#include "train/trainer.h"

namespace slime::loop {

/// Each is called by the loop's thread and returns when it is done. What cannot go on throws.
class Steps {
 public:
  virtual ~Steps() = default;

  /// Of the weights that the engines have.
  virtual WeightVersion version() const = 0;

  /// From here on generation goes on while the loop trains. `version`: of the engines' weights.
  virtual void start_stream(WeightVersion version) = 0;

  /// The groups of step `step`: prompts, responses, scores; kept or dropped. Throws ConfigError
  /// when the data has ended, and StepAbandoned (loop/step_abandoned.h) at Ctrl-C.
  virtual report::Collected collect(int64_t step) = 0;

  /// Where they share weights or device, the engines stand still and the trainers have it. OutcomeLog of
  /// the groups are noted with it: from here on the step is whole.
  virtual train::TrainReport train_on(const std::vector<Group>& groups) = 0;

  /// Groups that were collected and will not be trained by this process: a checkpoint that follows has
  /// them given out again.
  virtual void abandon(const std::vector<Group>& /*groups*/) {}

  /// The step that was collected last ends without training: its groups are discarded.
  virtual void skip(const std::vector<Group>& /*groups*/) {
    throw BugError("a built-in loop trains every step");
  }

  /// The new weights to the engines, which go on. In asynchronous runs what is under way does what
  /// --update-mode says.
  virtual void publish(WeightVersion version) = 0;

  /// Metrics and files of a step; `report` is null where nothing is trained.
  virtual void end_step(int64_t step, const report::Collected& collected,
                        const train::TrainReport* report) = 0;

  /// All evaluation sets with the weights as they are, for the metrics of step `step`. Behind the
  /// save: an evaluation that throws loses nothing.
  virtual void evaluate(int64_t step) = 0;

  /// A checkpoint behind step `step`.
  virtual void save(int64_t step) = 0;

  /// The run is over before step `step`, where it also would go on. What was trained and not saved
  /// is saved first.
  virtual void finish(int64_t step) = 0;

  /// Ctrl-C: collect() throws, training ends, what was trained is saved, and the run is over.
  virtual bool is_interrupted() const = 0;
};

}  // namespace slime::loop
