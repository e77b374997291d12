#pragma once

/// The verbs of a step, done by the stations of a run.

#include <functional>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "loop/stations.h"
#include "loop/step_boundary.h"
#include "loop/steps.h"
#include "loop/ticket_lock.h"
#include "roles/handover.h"

namespace slime::loop {

/// One class because a step's end, its rescue and the next one's beginning follow from the same counts.
class StationSteps final : public Steps {
 public:
  /// `run` outlives the object.
  explicit StationSteps(Stations& run)
      : run_(run), trained_(run.course.schedule.first_step - 1), saved_(trained_) {}

  /// Before the first step.
  void begin();
  /// What is trained and whole and in no checkpoint is saved. Throws nothing: an error is on its way,
  /// or Ctrl-C came; what keeps it from being saved is told.
  void rescue();
  WeightVersion version() const override {
    return run_.topology.engines->weight_version().value_or(step_);  // where nothing is generated
  }
  void start_stream(WeightVersion version) override;
  report::Collected collect(int64_t step) override;
  train::TrainReport train_on(const std::vector<Group>& groups) override;
  void abandon(const std::vector<Group>& groups) override;
  void skip(const std::vector<Group>& groups) override;
  void publish(WeightVersion version) override;
  void end_step(int64_t step, const report::Collected& collected,
                const train::TrainReport* report) override;
  void evaluate(int64_t step) override;
  void save(int64_t step) override;
  void finish(int64_t step) override;
  bool is_interrupted() const override { return run_.interrupt->requested(); }

 private:
  roles::Handover handover() const;
  /// --flush-cache-interval: whether the update to `version` interrupts, where others keep.
  bool flushes(WeightVersion version) const;
  /// --check-weight-update-equal; throws ConfigError where the engines' weights are others.
  void check_update();

  train::TrainReport train_whole(const std::vector<Group>& groups);
  /// Of several runs over one base; null: the run is alone.
  std::unique_ptr<TicketLock::Hold> lock_trainer();
  /// Keeps the moment before a step is collected, where that can be gone back to.
  void keep_boundary();
  void save_unsaved();
  void go_on_unpublished();
  /// Ends the run where too many steps in a row had nothing to train on.
  void count_untrained(const std::vector<Group>& groups);

  Stations& run_;
  int64_t trained_;              // the last step whose training is whole; or the one before
  int64_t saved_;                // that a checkpoint has
  bool is_saving_ = false;       // or a save has thrown: it is not tried again
  bool is_between_ = false;      // weights may be between two steps
  bool is_published_ = true;     // the engines have the weights of `trained_`
  int64_t num_unpublished_ = 0;  // steps that this process trained since it last published
  bool stand_still_ = false;     // the engines, since training began
  std::optional<StepBoundary> boundary_;  // behind `trained_`, while the next one is collected
  int64_t untrained_in_a_row_ = 0;
  std::optional<Clock::TimePoint> collected_until_;  // the last step was, then
  int64_t step_ = 0;                                 // that was collected last
  int num_checked_updates_ = 0;
  WeightVersion first_version_ = 0;       // of the engines, before the first step
  std::optional<bool> last_has_flushed_;  // the update that was last published
};

/// The steps of `run` in the order of `loop`, with what comes before the first and behind the last. Saves
/// what was trained where `loop` throws. Returns the exit code: 0, or Interrupt::kExitCode after Ctrl-C.
int run_steps(Stations& run, const std::function<void(StationSteps&)>& loop);

/// The same with the loop that the flags of the run ask for.
int run_loop(Stations& run);

}  // namespace slime::loop
