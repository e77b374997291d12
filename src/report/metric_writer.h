#pragma once

/// Writer of a step's metrics: metrics.jsonl and TensorBoard (report/tracking.h), and the trackers of
/// --report-to.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/clock.h"
#include "core/json.h"
#include "report/run_folder.h"
#include "report/tracker_process.h"
#include "report/tracking.h"

namespace slime::report {

class MetricWriter {
 public:
  /// `first_step`: what an earlier process wrote for it and later steps is cut off. `run`: what
  /// run.json says. `tell`: for people, also after this returns. Throws ConfigError when a tracker cannot
  /// start. `clock` outlives the object.
  MetricWriter(const config::RunConfig& config, const RunFolder& folder, int64_t first_step,
               const json::object& run, const Clock& clock,
               const std::function<void(const std::string&)>& tell);

  void write(int64_t step, const Metrics& metrics, const StepDetails& details = {});

 private:
  bool plots_train_steps_;
  int64_t samples_per_rollout_;
  int64_t samples_per_step_;
  Tracker tracker_;
  std::vector<std::unique_ptr<TrackerProcess>> others_;
};

}  // namespace slime::report
