#pragma once

/// The folder of a run: where everything it writes lies.
///
///   RUN_DIR/run.json                       flags, model, versions
///   RUN_DIR/metrics.jsonl  tensorboard/    numbers of each step
///   RUN_DIR/rollouts/step_000012.jsonl     samples of each step
///   RUN_DIR/skipped/12.jsonl               samples of a step that was not trained: its gradients
///   were not finite;
///                                          --load-debug-rollout-data
///                                          'RUN_DIR/skipped/{rollout_id}.jsonl' trains them again
///   RUN_DIR/workers/rank_1.log             what the other ranks printed, where there are some
///   RUN_DIR/ledger.jsonl                   the fate of every prompt
///   RUN_DIR/checkpoints/iter_0000012/      see train/checkpoint.h; --save puts them elsewhere
///   RUN_DIR/latest                         link to the newest checkpoint

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "config/run_config.h"
#include "core/json.h"

namespace slime::loop {

class RunFolder {
 public:
  /// Creates the folder. Throws ConfigError when that is not possible.
  explicit RunFolder(const config::RunConfig& config);

  const std::filesystem::path& root() const { return root_; }
  const std::filesystem::path& checkpoints() const { return checkpoints_; }
  std::filesystem::path ledger() const { return root_ / "ledger.jsonl"; }
  std::filesystem::path latest() const { return root_ / "latest"; }
  std::filesystem::path rollouts(int64_t step) const;
  std::filesystem::path skipped(int64_t step) const;
  std::filesystem::path worker_logs() const { return root_ / "workers"; }

  /// Points RUN_DIR/latest at a checkpoint, atomically.
  void set_latest(const std::filesystem::path& checkpoint) const;
  void write_run_json(const json::object& run) const;
  /// Rollout files of `first_step` and later steps, left by a process that died: they will be made
  /// again.
  void remove_rollouts_from(int64_t first_step) const;

 private:
  std::filesystem::path root_;
  std::filesystem::path checkpoints_;
};

}  // namespace slime::loop
