#pragma once

/// The verbs of a step, done by the stations of a run.

#include <optional>

#include "core/clock.h"
#include "loop/handover.h"
#include "loop/stations.h"
#include "loop/steps.h"

namespace slime::loop {

class StationSteps final : public Steps {
 public:
  /// `run` outlives the object.
  explicit StationSteps(Stations& run) : run_(run) {}

  /// Before the first step.
  void begin() { check_update(); }
  WeightVersion version() const override { return *run_.engines().weight_version(); }
  void start_stream(WeightVersion version) override;
  Collected collect(int64_t step) override;
  train::TrainReport train_on(const std::vector<Group>& groups) override;
  void publish(WeightVersion version) override;
  void end_step(int64_t step, const Collected& collected,
                const train::TrainReport* report) override;
  void evaluate(int64_t step) override;
  void save(int64_t step) override;
  void finish(int64_t step) override;
  bool is_interrupted() const override { return run_.interrupt->requested(); }

 private:
  Handover handover() const;
  void evaluate_rows(int64_t step);
  void evaluate_by_function(int64_t step);
  void evaluate_beside(int64_t step);
  /// The row of an evaluation beside training that has ended; `waits`: or that is under way. Ctrl-C
  /// abandons the latter.
  void take_evaluation(bool waits);
  /// --check-weight-update-equal; throws ConfigError where the engines' weights are others.
  void check_update();

  Stations& run_;
  std::optional<Clock::TimePoint> collected_until_;  // the last step was, then
  int64_t step_ = 0;                                 // that was collected last
  int num_checked_updates_ = 0;
};

/// The loop that the flags of the run ask for. Returns the exit code: 0, or Interrupt::kExitCode
/// after Ctrl-C.
int run_loop(Stations& run);

}  // namespace slime::loop
