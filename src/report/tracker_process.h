#pragma once

/// A tracker (Weights & Biases, MLflow, Trackio) through the user's own package of it, in a child process
/// that runs src/report/trackers/tracker.py: it gets one line of JSON for each record of metrics.jsonl.
///
/// The run waits for a tracker twice: until it has started, and at most a minute at the end. Between, a
/// tracker that fails or falls behind costs its plots, never the run: what its pipe does not take waits in
/// memory up to a bound, beyond which the tracker gets nothing more.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"
#include "report/metrics.h"
#include "report/step_details.h"

namespace slime::report {

class TrackerProcess {
 public:
  /// For people, once, where the tracker is lost.
  using Tell = std::function<void(const std::string&)>;

  /// `tracker`: a word of --report-to. Starts $SLIME_PYTHON or python3 and waits until the tracker has
  /// begun a run. `run_dir` is where wandb writes unless --wandb-dir says otherwise; `settings` become the
  /// run's configuration. Throws ConfigError with the child's words when there is no Python, no package, or
  /// it does not begin.
  TrackerProcess(std::string tracker, const config::OutputFlags& config, const std::string& run_dir,
                 const json::object& settings, Tell tell);
  /// Closes the stream and waits for the tracker to finish, a minute at most; not for one that is lost.
  ~TrackerProcess();
  TrackerProcess(const TrackerProcess&) = delete;
  TrackerProcess& operator=(const TrackerProcess&) = delete;

  /// One record; `step` is where a rollout stands on the axis. Never waits.
  void write(int64_t step, const Metrics& metrics, const StepDetails& details = {});

  /// Bytes that may wait for a tracker.
  static constexpr std::size_t kMostWaiting = std::size_t{8} << 20;

 private:
  void start(const config::OutputFlags& config, const std::string& run_dir,
             const json::object& settings);
  /// As much of what waits as the pipe takes.
  void send();
  void lose(const std::string& why);
  /// The next line of the child; what has come of it until `milliseconds` have passed.
  std::string read_line(int milliseconds);

  std::string tracker_;
  Tell tell_;
  std::string waiting_;  // whole lines, the first perhaps begun
  int64_t child_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
};

/// Error message for a tracker that did not start, with a remedy. `why`: the child's message; empty
/// if it sent none.
std::string tracker_problem(const std::string& tracker, const std::string& why,
                            const std::string& python);

/// metrics plus rollout/step, train/step and eval/step where a name of the group is present: the
/// axes that wandb plots over. `step` is the rollout, `plotted` where it stands on the axis.
Metrics with_step_axes(const Metrics& metrics, int64_t plotted);

}  // namespace slime::report
