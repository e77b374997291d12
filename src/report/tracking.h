#pragma once

/// Metric files of a run: RUN_DIR/metrics.jsonl for `slime report` and for pandas,
/// RUN_DIR/tensorboard/ for TensorBoard. The loop writes once per step, before it once for each
/// optimizer update but the last, and once more after an evaluation; nobody else writes metrics.
///
/// One line of metrics.jsonl:
///
///   {"step": 3, "time": 1765432100.25, "rollout/raw_reward": 0.41, "train/grad_norm": 0.87, ...}
///
/// Numbers are printed so that they read back exactly. One that is not finite is null there, NaN or
/// inf in TensorBoard. Each line is handed to the operating system at once: what was written
/// survives the death of the process.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/clock.h"
#include "core/json.h"
#include "report/event_file.h"
#include "report/step_details.h"

namespace slime::report {

/// A file that only grows. Throws std::runtime_error with path and reason when the system refuses
/// (a full disk).
class AppendFile {
 public:
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

class Tracker {
 public:
  /// `first_step` is the step the run starts or resumes at: what an earlier process wrote for it
  /// and for later steps is cut off first, as is a torn last record. `settings` are the run's, for
  /// TensorBoard, of the start that wrote step 0. `clock` outlives the tracker.
  Tracker(const std::filesystem::path& run_dir, int64_t first_step, const Clock& clock,
          const json::object& settings = {});

  /// The metrics of one step. Several calls for one step are several lines. TensorBoard gets `details` too.
  void write(int64_t step, const Metrics& metrics, const StepDetails& details = {});

 private:
  const Clock& clock_;
  AppendFile lines_;
  AppendFile events_;
};

/// Cuts the file at the first line that is not whole or no JSON object with a step, and removes the
/// lines with a step of `first_step` or more. (The row of an evaluation beside training comes later
/// than those of the steps that it did not stop.) Does nothing when there is no such file.
void truncate_metric_lines(const std::filesystem::path& path, int64_t first_step);

/// The same for an event file, whose records of optimizer updates stand at their train/step: those of
/// `first_update` or more go.
void truncate_event_file(const std::filesystem::path& path, int64_t first_step,
                         int64_t first_update);

/// The largest step of metrics.jsonl with a score of an evaluation. Empty without a file.
std::optional<int64_t> last_evaluated_step(const std::filesystem::path& path);

}  // namespace slime::report
