#pragma once

/// Recorder of a run: metrics, the display, rollout files, the closing table.
///
/// The loop tells it what stations returned; stations know nothing of it. Used by the thread of the
/// loop, except message() and reached(), which may come from any.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "core/clock.h"
#include "core/json.h"
#include "kernels/gpu/utilization.h"
#include "kernels/trace.h"
#include "report/collected.h"
#include "report/eval_report.h"
#include "report/heap_trim.h"
#include "report/learning_signal.h"
#include "report/metric_writer.h"
#include "report/progress.h"
#include "report/rollout_writer.h"
#include "report/run_folder.h"
#include "report/run_memory.h"
#include "report/run_summary.h"
#include "report/step_profiler.h"
#include "report/timeline.h"
#include "report/users_output.h"
#include "setup/run_schedule.h"
#include "text/tokenizer/tokenizer.h"
#include "train/trainer.h"

namespace slime::report {

/// One class because each number of a step goes to several places at once: a metric, the line on
/// the display, the closing table.
class Recorder {
 public:
  /// `run`: what run.json says. References outlive the object. Throws ConfigError when a tracker
  /// cannot start.
  Recorder(const config::RunConfig& config, const RunFolder& folder,
           const setup::RunSchedule& schedule, const text::Tokenizer& tokenizer,
           const json::object& run, RunMemory& memory, Timeline& timeline, const Clock& clock);

  /// Begins a phase of the step: for the display, and in a trace as long as the result lives.
  [[nodiscard]] kernels::TraceRange phase(const char* name, std::string_view unit = {},
                                          int64_t total = 0);
  /// Since the phase began `units` have been done, with `tokens` tokens in all.
  void reached(int64_t units, int64_t tokens) { progress_.reached(units, tokens); }
  Timeline& timeline() { return timeline_; }
  /// A line above the display.
  void message(std::string_view line) { progress_.message(line); }

  /// --profile may begin or end with this step.
  void begin_step(int64_t step);
  /// A step; `report` is null where nothing is trained (--debug-rollout-only). Throws ConfigError
  /// when the report says that training must not go on.
  void end_step(int64_t step, const Collected& collected, const train::TrainReport* report);
  void evaluated(int64_t step, const EvalReport& report);
  /// Its row tells what was evaluated, and how old that was when it ended.
  void evaluated_beside(const ConcurrentEvaluation& done);
  /// After a checkpoint; what was recorded until then is written when this returns. Throws ConfigError
  /// where a dump of rollouts cannot be written.
  void saved(int64_t step);
  /// All that was written of steps is on the disk when this returns.
  void sync();
  /// Ends the display with the closing table; `interrupted`: the run was told to stop.
  void finish(int64_t steps_done, bool interrupted);

 private:
  void add_samples(const Collected& collected, Metrics& metrics, StepSummary& line);
  void add_untrained(int64_t step, const Collected& collected, Metrics& metrics);
  void add_mismatch(int64_t step, const Metrics& metrics, StepSummary& line);
  void add_training(int64_t step, const Collected& collected, const train::TrainReport& report,
                    Metrics& metrics, StepSummary& line);
  /// Asynchronous runs: who waited for whom.
  void add_waits(Metrics& metrics, StepSummary& line);
  /// Of this step, mean of the engines.
  double seconds_of_engines(std::string_view phase) const;
  void add_utilization(Metrics& metrics);
  void add_memory(int64_t step, Metrics& metrics, StepSummary& line);
  void announce_trace(const std::optional<std::filesystem::path>& file);

  const config::RunConfig& config_;
  const RunFolder& folder_;
  const setup::RunSchedule& schedule_;
  RunMemory& memory_;
  Timeline& timeline_;
  const Clock& clock_;
  MetricWriter metrics_;
  RunSummary summary_;
  UntrainedNotice untrained_;
  UsersOutput users_output_;
  Progress progress_;
  RolloutWriter rollouts_;                // tells by progress_
  std::optional<StepProfiler> profiler_;  // --profile
  HeapTrim heap_trim_;
  kernels::GpuUtilization utilization_;  // of a run on GPUs
  LearningSignal signal_;
  Clock::TimePoint trained_until_;  // end of the last training phase
};

}  // namespace slime::report
