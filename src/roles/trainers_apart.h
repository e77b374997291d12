#pragma once

/// Trainers of which each rank has a `slime worker` process: the controller has none and does no device
/// work, so that a rank that dies, rank 0 as any other, can be started again (loop/restarts.h). They load
/// the same model from the same resolved configuration, and may have engines over their weights
/// (roles/rank_engines.h; docs/decisions/0061-ranks.md, 0072-comm.md, 0119-one-topology.md).

#include <memory>
#include <string>
#include <vector>

#include "cluster/placement.h"
#include "cluster/run_identity.h"
#include "cluster/workers.h"
#include "comm/parallel_layout.h"
#include "estimate/memory_plan.h"
#include "report/run_memory.h"
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
  /// once, before everything below. Returns rank 0's memory plan, as the others' are. `shape`: of the
  /// whole model; of `config`, with which ranks train, counts how it divides batches.
  estimate::MemoryPlan open(std::unique_ptr<model::Network> shape, const train::TrainConfig& config,
                            const train::Warn& warn);
  /// Of rank 0's process. Valid as long as the trainers are.
  std::unique_ptr<report::MemoryGauge> memory_gauge();

  /// Engines over the ranks: on each, or one over rank 0's weights. One connected socket for each rank,
  /// which the caller owns; where a rank leads no engine nothing answers there. Comes once.
  std::vector<int> start_engines(const EngineStart& start);
  /// Until they can be served.
  EngineReady wait_for_engines();
  /// The weights of all ranks, as they are now, to those engines. They are paused, or have copies.
  void bring_weights();

  train::TrainReport train(const train::TrainBatch& batch) override;
  void weights_published() override { tell_all({.kind = RankTask::kPublished}); }
  void gather_weights(model::Network& whole) override;
  WeightChecksums weight_checksums(kernels::MatrixFormat matrices) override;
  std::filesystem::path save(const train::CheckpointConfig& config, int64_t iteration,
                             const json::object& run) override;
  /// Of all ranks, and of what their allocators hold.
  void release_memory() override;
  const std::atomic<bool>& has_failed() const override { return workers_.has_failed(); }
  void check_alive() override { workers_.check_alive(); }

 private:
  void tell_all(const TrainerTask& task);
  void wait_for_all();

  comm::ParallelLayout layout_;
  std::string address_;  // of rank 0's host
  std::unique_ptr<model::Network> shape_;
  train::TrainConfig config_;
  cluster::Workers workers_;
};

}  // namespace slime::roles
