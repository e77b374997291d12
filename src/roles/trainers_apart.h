#pragma once

/// Trainers of which each rank has a `slime worker` process, beside engines in workers or
/// without engines: the controller has none and does no device work, so that a rank that dies is one
/// that can be started again (loop/restarts.h). They load the same model from the same resolved configuration
/// (docs/decisions/0061-ranks.md, 0072-comm.md, 0083-many-devices.md).

#include <memory>
#include <string>
#include <vector>

#include "cluster/workers.h"
#include "comm/parallel_layout.h"
#include "roles/rank_tasks.h"
#include "roles/trainers.h"

namespace slime::roles {

class TrainersApart final : public Trainers {
 public:
  /// Starts the processes, which load while the caller goes on. `start` lacks what is of one rank
  /// alone. What rank k prints is in log_folder/rank_k.log. `hosts` and `clock` outlive the object.
  TrainersApart(RankStart start, const cluster::RunIdentity& identity,
                const std::filesystem::path& log_folder, cluster::Hosts& hosts, const Clock& clock);

  /// Waits until all ranks have met and can train, and tells by `warn` what they have to say. Comes
  /// once, before everything below. `shape`: a network of the whole model, which outlives this; of
  /// `config`, with which ranks train, counts how it divides batches.
  void open(model::Network& shape, const train::TrainConfig& config, const train::Warn& warn);

  train::TrainReport train(const train::TrainBatch& batch) override;
  void weights_published() override { tell_all({.kind = RankTask::kPublished}); }
  void gather_weights(model::Network& whole) override;
  WeightChecksums weight_checksums() override;
  std::filesystem::path save(const train::CheckpointConfig& config, int64_t iteration,
                             const json::object& run) override;
  void release_memory() override;
  const std::atomic<bool>& has_failed() const override { return workers_.has_failed(); }
  void check_alive() override { workers_.check_alive(); }

 private:
  void tell_all(const TrainerTask& task);

  comm::ParallelLayout layout_;
  std::string address_;  // of rank 0's host
  model::Network* shape_ = nullptr;
  train::TrainConfig config_;
  cluster::Workers workers_;
};

}  // namespace slime::roles
