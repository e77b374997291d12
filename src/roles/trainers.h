#pragma once

/// Trainers of a run as the loop sees them: one rank in this process, or each rank in a worker of its own
/// (roles/trainers_apart.h). The loop does not know which.
///
/// A rank that dies, says that it cannot go on, or hangs takes all of them with it: every function
/// here may throw cluster::WorkerFailure with the rank, its process and its last words. What happens
/// then: loop/restarts.h.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/json.h"
#include "core/weight_checksums.h"
#include "model/network.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace slime::roles {

class Trainers {
 public:
  virtual ~Trainers() = default;

  /// One rollout step on all ranks; log-probs of the report are those of the whole batch. Throws
  /// ConfigError as train::Trainer::train().
  virtual train::TrainReport train(const train::TrainBatch& batch) = 0;
  /// The engines have got these weights.
  virtual void weights_published() = 0;
  /// The weights of all ranks as they are now in `whole`, a network of the whole model, plain or in another
  /// format; then codes are made of whole tensors before they travel.
  virtual void gather_weights(model::Network& whole) = 0;
  /// Of the weights that gather_weights() would bring into a network with such matrices.
  virtual WeightChecksums weight_checksums(kernels::MatrixFormat matrices) = 0;
  /// Writes a checkpoint and returns its directory (train/checkpoint.h).
  virtual std::filesystem::path save(const train::CheckpointConfig& config, int64_t iteration,
                                     const json::object& run) = 0;
  /// What is held for training alone goes back until the next train().
  virtual void release_memory() = 0;

  /// Changes of the weights so far, where that is known: of a rank in this process.
  virtual std::optional<int64_t> num_changes() const { return std::nullopt; }

  /// Set when a rank has failed; check_alive() then throws.
  virtual const std::atomic<bool>& has_failed() const = 0;
  virtual void check_alive() = 0;
};

/// The only rank, in this process: direct calls, nothing is divided or serialised.
class TrainersHere final : public Trainers {
 public:
  /// Trains `network`, which the engine here reads. References outlive the object.
  TrainersHere(model::Network& network, const train::TrainConfig& config,
               train::OtherNetworks others, const Clock& clock)
      : trainer_(network, config, clock, std::move(others), comm::Mesh::single()) {}

  /// Goes on from a checkpoint, without the parts that `left_out` leaves out (train::LeavesOut).
  void restore(const train::Checkpoint& checkpoint, uint32_t left_out, const train::Warn& warn);

  train::TrainReport train(const train::TrainBatch& batch) override;
  void weights_published() override { trainer_.weights_published(); }
  void gather_weights(model::Network& whole) override;
  WeightChecksums weight_checksums(kernels::MatrixFormat matrices) override;
  std::filesystem::path save(const train::CheckpointConfig& config, int64_t iteration,
                             const json::object& run) override;
  void release_memory() override { trainer_.release_gradients(); }
  std::optional<int64_t> num_changes() const override { return trainer_.num_changes(); }
  const std::atomic<bool>& has_failed() const override { return has_failed_; }
  void check_alive() override {}

 private:
  train::Trainer trainer_;
  std::atomic<bool> has_failed_{false};  // this process would be gone
};

/// For runs that train nothing (--debug-rollout-only): training is a bug.
class NoTrainers final : public Trainers {
 public:
  train::TrainReport train(const train::TrainBatch&) override;
  void weights_published() override {}
  void gather_weights(model::Network&) override;
  WeightChecksums weight_checksums(kernels::MatrixFormat matrices) override;
  std::filesystem::path save(const train::CheckpointConfig&, int64_t, const json::object&) override;
  void release_memory() override {}
  const std::atomic<bool>& has_failed() const override { return has_failed_; }
  void check_alive() override {}

 private:
  std::atomic<bool> has_failed_{false};
};

/// Of a rank's start: a model may come from a slow disk.
inline constexpr std::chrono::minutes kRankLoadTimeout{30};
/// Ends the process with a message: for a run whose ranks are lost, where nobody notices.
[[noreturn]] void end_run(const std::string& message);

}  // namespace slime::roles
