#pragma once

/// Weights & Biases through the user's own `wandb` package, in a child process: the records of
/// metrics.jsonl go to its standard input. The run never waits for a network: wandb has its own
/// queue, and a child that dies costs its plots, not the run.

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "core/json.h"
#include "report/metrics.h"

namespace slime::report {

class WandbProcess {
 public:
  /// Starts $SLIME_PYTHON or python3 and waits until wandb.init has returned. `run_dir` is where
  /// wandb writes unless --wandb-dir says otherwise; `settings` become the run's config. Throws
  /// ConfigError with the child's words when there is no Python, no wandb, or init fails.
  WandbProcess(const config::OutputFlags& config, const std::string& run_dir,
               const json::object& settings);
  /// Closes the stream and waits for wandb.finish, a minute at most.
  ~WandbProcess();
  WandbProcess(const WandbProcess&) = delete;
  WandbProcess& operator=(const WandbProcess&) = delete;

  /// One record. Does nothing once the child is gone.
  void write(const Metrics& metrics);

 private:
  std::string read_line();
  bool send(const std::string& line);

  int64_t child_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
};

/// What to tell a user whose wandb did not start, with what would work: `why` is the child's word, empty
/// where it said none.
std::string wandb_problem(const std::string& why, const std::string& python);

/// metrics plus rollout/step, train/step and eval/step where a name of the group is present: the
/// axes that wandb plots over. `step` is the rollout, `plotted` where it stands on the axis.
Metrics with_step_axes(const Metrics& metrics, int64_t plotted);

}  // namespace slime::report
