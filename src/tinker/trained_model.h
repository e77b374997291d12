#pragma once

/// A model that requests train, with its optimizer and the networks that its loss compares with: all weights
/// of a network of its own, or an adapter beside a base that others have adapters beside too.
///
/// Members are called by one thread, the service's; those that are const by any.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/clock.h"
#include "model/adapter_files.h"
#include "model/adapter_tensors.h"
#include "model/network.h"
#include "tinker/sampler.h"
#include "tinker/training_request.h"
#include "train/trainer.h"

namespace slime::tinker {

class TrainedModel {
 public:
  /// All weights of --hf-checkpoint, which are loaded. References outlive the object. Throws ConfigError.
  TrainedModel(const config::RunConfig& config, const Clock& clock);
  /// An adapter that begins as its seed says, beside `base`, whose only slot it takes while it computes.
  TrainedModel(const config::RunConfig& config, const Clock& clock,
               std::shared_ptr<model::Network> base, const model::AdapterForm& form, uint64_t seed);

  /// Null: all weights train.
  const model::AdapterForm* adapter() const { return tensors_ ? &tensors_->form() : nullptr; }
  const train::TrainConfig& train_config() const { return trainer_->config(); }
  const model::ModelConfig& model() const { return network_->config(); }
  int64_t updates() const { return updates_; }

  train::GivenPass pass(const train::GivenBatch& batch, const train::GivenLoss& loss,
                        bool adds_gradients);
  train::GivenUpdateReport update(const train::GivenUpdate& update);

  /// A model directory, with the optimizer's state beside it. Throws ConfigError when it cannot be written,
  /// or is there and `overwrites` is not set. `more`: fields of its run.json.
  void save(const std::filesystem::path& directory, bool overwrites, json::object more = {});
  /// What save() throws before it writes anything.
  static void check_saved_to(const std::filesystem::path& directory, bool overwrites);
  /// What run.json of a save says now (train::run_file).
  json::object run_file(json::object more) const;
  /// Weights of a model directory, or of an adapter's with the same matrices; `restores`: moments and step
  /// counter too, which it has to have. `adapter`: the directory's, where it is open already.
  void load(const std::filesystem::path& directory, bool restores,
            const model::AdapterFile* adapter = nullptr);
  /// All weights, and the optimizer, as they were in the beginning.
  void begin_again();
  /// Whether there are gradients that no update has used.
  bool has_gradients() const { return has_gradients_; }

  /// The weights as they are now. The one before, where they have not changed.
  SharedSnapshot snapshot();

 private:
  /// The base computes with this adapter.
  void take_slot();
  void copy_weights(const std::filesystem::path& directory, const model::AdapterFile* adapter);
  /// Throws ConfigError where the adapter of the file is of another form.
  void check_is_own(const std::filesystem::path& directory, const model::AdapterFile& file) const;
  void copy_adapter(const std::filesystem::path& directory, const model::AdapterFile& file);

  const config::RunConfig& config_;
  const model::Precision precision_;
  std::shared_ptr<model::Network> network_;  // the base, where there is an adapter
  std::shared_ptr<model::AdapterTensors> tensors_;
  std::unique_ptr<train::Trainer> trainer_;
  bool has_gradients_ = false;
  int64_t updates_ = 0;   // since the beginning
  int64_t versions_ = 0;  // of the weights, loads included
  SharedSnapshot last_;
  int64_t version_of_last_ = -1;
};

/// Throws ConfigError with the flags that passes by requests do not train with.
void check_takes_requests(const config::RunConfig& config, bool has_experts);

/// A whole model, from a directory.
SharedSnapshot whole_snapshot(const config::RunConfig& config,
                              const std::filesystem::path& directory);
/// An adapter beside `base`, from a directory.
SharedSnapshot adapter_snapshot(model::Network& base, const std::filesystem::path& directory);

/// A directory that the two functions above read. Throws ConfigError.
void write_snapshot(const Snapshot& snapshot, const std::filesystem::path& directory);

/// Directory of an adapter as save() writes it, without the optimizer; replaces one that is there. `run_file`: of the
/// moment of the snapshot. Any thread. Throws ConfigError.
void write_saved_adapter(const config::RunConfig& config, const Snapshot& snapshot,
                         const json::object& run_file, const std::filesystem::path& directory);

/// Whether the device has products with several adapters in this precision.
bool has_adapters(const config::RunConfig& config);

}  // namespace slime::tinker
