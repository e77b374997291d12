#pragma once

/// Time account of a run: seconds of phases, of the current step and of the whole run, and the
/// estimate of the remaining time. Phases follow one another; a step is over when its last one is.
///
/// Not locked: it belongs to whoever shows it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "report/progress_lines.h"

namespace slime::report {

class RunTimes final {
 public:
  /// The run begins. `first_step` is above 0 in a resumed run; `clock` outlives the object.
  RunTimes(const Clock& clock, int64_t first_step);

  /// Ends the phase before it. A phase of the same name within one step adds to its time.
  void begin_phase(std::string_view name);
  void end_phase();
  /// Ends the phase and the step; `steps_done` counts from the run's beginning, the steps of earlier
  /// processes included. Gives the phases of the step.
  std::vector<PhaseTime> end_step(int64_t steps_done);

  /// Since the phase under way began, or since the last one ended.
  double phase_seconds() const;
  /// Phases of the step under way, the one that is not over included.
  std::vector<PhaseTime> step_phases() const;
  /// Phases of the run that are over.
  const std::vector<PhaseTime>& run_phases() const { return run_phases_; }
  double run_seconds() const;
  /// At the pace of the last steps; below 0 while no step is over.
  double seconds_left(int64_t steps_left) const;

 private:
  const Clock& clock_;
  const int64_t first_step_;
  const Clock::TimePoint run_begin_;
  Clock::TimePoint step_begin_;
  Clock::TimePoint phase_begin_;
  std::string phase_;             // empty: none is under way
  double step_seconds_mean_ = 0;  // exponential mean over finished steps
  std::vector<PhaseTime> step_phases_;
  std::vector<PhaseTime> run_phases_;
};

}  // namespace slime::report
