#pragma once

/// What the loop sees of training: one rank in this process; several, the first in this process; or
/// all in workers of their own (roles/trainers_apart.h). The loop does not know which.
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

#include "cluster/placement.h"
#include "cluster/run_identity.h"
#include "core/clock.h"
#include "core/weight_checksums.h"
#include "model/network.h"
#include "roles/engine_group.h"
#include "roles/rank_tasks.h"
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
  /// The weights of all ranks as they are now in `whole`, a network of the whole model.
  virtual void gather_weights(model::Network& whole) = 0;
  /// Of the weights that gather_weights() would bring.
  virtual WeightChecksums weight_checksums() = 0;
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

/// Those whose rank 0 is in this process.
class HostedTrainers : public Trainers {
 public:
  /// Waits until all ranks have met. Comes once, before everything else.
  virtual const comm::Mesh& connect() { return comm::Mesh::single(); }
  /// Rank 0's place in an engine of several ranks, behind connect(); null: its engine is its own.
  virtual EngineGroup* engine_group() { return nullptr; }
  /// Waits until all ranks have loaded their networks, and makes the trainer of rank 0, whose
  /// worker is this process: where ranks hold the model whole, the engine here reads the weights of
  /// `network`, which outlives this. Comes once.
  virtual void open(model::Network& network, const train::TrainConfig& config,
                    train::OtherNetworks others) = 0;
  /// Rank 0 goes on from a checkpoint, without the parts that `left_out` leaves out
  /// (train::LeavesOut); the others have learnt of it as they started.
  virtual void restore(const train::Checkpoint& checkpoint, uint32_t left_out,
                       const train::Warn& warn) = 0;

  /// The other ranks make engines over the weights that they train or, where engines hold the model
  /// otherwise than the ranks do, over networks like `own`, rank 0's, which gather_weights() then writes
  /// to all at once. One connected socket for each, which the caller owns. Comes once, behind open(),
  /// where RunConfig::has_engine_on_each_rank(); `own` outlives this.
  virtual std::vector<int> start_engines(const EngineStart& /*start*/, model::Network& /*own*/) {
    return {};
  }
  /// Until these engines serve.
  virtual void wait_for_engines() {}
};

/// For runs that train nothing (--debug-rollout-only): training is a bug.
class NoTrainers final : public HostedTrainers {
 public:
  void open(model::Network&, const train::TrainConfig&, train::OtherNetworks) override;
  void restore(const train::Checkpoint&, uint32_t, const train::Warn&) override {}
  train::TrainReport train(const train::TrainBatch&) override;
  void weights_published() override {}
  void gather_weights(model::Network&) override;
  WeightChecksums weight_checksums() override;
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

/// Starts the processes of the other ranks, where there are several; they load while the caller
/// goes on. `start` lacks what is of one rank alone. What rank k prints is in
/// log_folder/rank_k.log. `hosts` and `clock` outlive the trainers.
std::unique_ptr<HostedTrainers> start_trainers(RankStart start,
                                               const cluster::RunIdentity& identity,
                                               const std::filesystem::path& log_folder,
                                               cluster::Hosts& hosts, const Clock& clock);

}  // namespace slime::roles
