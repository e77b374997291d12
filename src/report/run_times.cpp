#include "report/run_times.h"

#include <algorithm>
#include <utility>

namespace slime::report {
namespace {

/// How fast the time of a step is forgotten: the mean reaches back about this many steps.
constexpr double kStepMemory = 8;

void add_time(std::vector<PhaseTime>& phases, const std::string& name, double seconds) {
  const auto found = std::ranges::find(phases, name, &PhaseTime::name);
  if (found != phases.end()) {
    found->seconds += seconds;
  } else {
    phases.push_back({name, seconds});
  }
}

}  // namespace

RunTimes::RunTimes(const Clock& clock, int64_t first_step)
    : clock_(clock),
      first_step_(first_step),
      run_begin_(clock.now()),
      step_begin_(run_begin_),
      phase_begin_(run_begin_) {}

void RunTimes::begin_phase(std::string_view name) {
  end_phase();
  phase_ = name;
}

void RunTimes::end_phase() {
  const Clock::TimePoint now = clock_.now();
  if (!phase_.empty()) {
    const double seconds = seconds_between(phase_begin_, now);
    add_time(step_phases_, phase_, seconds);
    add_time(run_phases_, phase_, seconds);
  }
  phase_begin_ = now;
  phase_.clear();
}

std::vector<PhaseTime> RunTimes::end_step(int64_t steps_done) {
  end_phase();
  const Clock::TimePoint now = clock_.now();
  const double seconds = seconds_between(step_begin_, now);
  step_begin_ = now;
  const auto steps_here = static_cast<double>(steps_done - first_step_);
  step_seconds_mean_ += (seconds - step_seconds_mean_) / std::clamp(steps_here, 1.0, kStepMemory);
  return std::exchange(step_phases_, {});
}

double RunTimes::phase_seconds() const { return seconds_between(phase_begin_, clock_.now()); }

std::vector<PhaseTime> RunTimes::step_phases() const {
  std::vector<PhaseTime> times = step_phases_;
  if (!phase_.empty()) add_time(times, phase_, phase_seconds());
  return times;
}

double RunTimes::run_seconds() const { return seconds_between(run_begin_, clock_.now()); }

double RunTimes::seconds_left(int64_t steps_left) const {
  if (step_seconds_mean_ <= 0) return -1;
  const double rest = static_cast<double>(steps_left) * step_seconds_mean_;
  return std::max(0.0, rest - seconds_between(step_begin_, clock_.now()));
}

}  // namespace slime::report
