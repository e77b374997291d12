#pragma once

/// Writer of a step's metrics: metrics.jsonl and TensorBoard (report/tracking.h), and with
/// --use-wandb Weights & Biases.

#include <cstdint>
#include <memory>

#include "config/run_config.h"
#include "core/clock.h"
#include "core/json.h"
#include "report/run_folder.h"
#include "report/tracking.h"
#include "report/wandb_process.h"

namespace slime::report {

class MetricWriter {
 public:
  /// `first_step`: what an earlier process wrote for it and later steps is cut off. `run`: what
  /// run.json says. Throws ConfigError when --use-wandb cannot start. `clock` outlives the object.
  MetricWriter(const config::RunConfig& config, const RunFolder& folder, int64_t first_step,
               const json::object& run, const Clock& clock);

  void write(int64_t step, const Metrics& metrics);

 private:
  bool plots_train_steps_;
  int64_t samples_per_rollout_;
  int64_t samples_per_step_;
  Tracker tracker_;
  std::unique_ptr<WandbProcess> wandb_;  // null without --use-wandb
};

}  // namespace slime::report
