#pragma once

/// The functions of the user's that the trainer of a rank calls, by the run's flags: Python in a plug-in
/// host beside the rank, or a shared library. Each rank has its own.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "train/trainer.h"

namespace slime::plugin {
class TrainerHost;
}

namespace slime::plugin {

class SharedTensors;

/// Imports the functions that the trainer would call, and loads its library. Throws ConfigError as
/// TrainerFunctions does.
void import_trainer_functions(const config::RunConfig& config, const std::filesystem::path& logs);

class TrainerFunctions final {
 public:
  /// Starts the host, where a function is Python's, and loads the library, where there is one. Throws
  /// ConfigError with everything that is wrong with any of them. `logs`: a folder for what the host
  /// writes.
  TrainerFunctions(const config::RunConfig& config, const std::filesystem::path& logs, int rank);
  ~TrainerFunctions();
  TrainerFunctions(const TrainerFunctions&) = delete;
  TrainerFunctions& operator=(const TrainerFunctions&) = delete;

  /// For who divides batches and calls no function: where there is one, something that throws
  /// BugError stands in its place.
  static void name_in(const config::RunConfig& config, train::TrainConfig& trainer);

  /// Makes a trainer with this configuration call them; the object outlives it. `first_rollout`: number
  /// of its first rollout step.
  void set_in(train::TrainConfig& trainer, int64_t first_rollout);

 private:
  /// Its place among the hooks of the host; nothing where the flag is not given.
  std::optional<int> place_of(const std::string& hook) const;
  /// Number of the rollout step that a trainer is in.
  int64_t rollout_id(int64_t rollouts_done);

  const config::RunConfig& config_;
  std::vector<std::string> hooks_;  // of the host, in its order
  std::unique_ptr<TrainerHost> host_;
  std::unique_ptr<SharedTensors> tensors_;
  train::LossFn library_;
  int64_t first_rollout_ = 0;
  std::optional<int64_t> done_before_;  // what a trainer counts as done at its first rollout step
};

}  // namespace slime::plugin
