#pragma once

/// The network that requests train, with its optimizer and the networks that its loss compares with.
///
/// All members but those of Snapshot are called by one thread, the service's.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/clock.h"
#include "model/network.h"
#include "tinker/sampler.h"
#include "tinker/training_request.h"
#include "train/trainer.h"

namespace slime::tinker {

class TrainedModel {
 public:
  /// Loads the weights of --hf-checkpoint. `clock` outlives the object. Throws ConfigError.
  TrainedModel(const config::RunConfig& config, const Clock& clock);

  const train::TrainConfig& train_config() const { return trainer_->config(); }
  ModelLimits limits() const;
  int64_t updates() const { return updates_; }

  train::GivenPass pass(const train::GivenBatch& batch, const train::GivenLoss& loss,
                        bool adds_gradients);
  train::GivenUpdateReport update(const train::GivenUpdate& update);

  /// A model directory, with the optimizer's state beside it. Throws ConfigError when it cannot be written,
  /// or is there and `overwrites` is not set.
  void save(const std::filesystem::path& directory, bool overwrites);
  /// Weights of a model directory; `restores`: moments and step counter too, which it has to have.
  void load(const std::filesystem::path& directory, bool restores);
  /// The weights, and the optimizer, as they were in the beginning.
  void begin_again();

  /// The weights as they are now. The one before, where they have not changed.
  SharedSnapshot snapshot();
  /// Those of another directory of the same model.
  SharedSnapshot snapshot_of(const std::filesystem::path& directory) const;

 private:
  void copy_weights(const std::filesystem::path& directory);

  const config::RunConfig& config_;
  const model::Precision precision_;
  std::unique_ptr<model::Network> network_;
  std::unique_ptr<train::Trainer> trainer_;
  int64_t updates_ = 0;   // since the beginning
  int64_t versions_ = 0;  // of the weights, loads included
  SharedSnapshot last_;
  int64_t version_of_last_ = -1;
};

}  // namespace slime::tinker
