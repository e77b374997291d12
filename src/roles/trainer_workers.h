#pragma once

/// Trainers of several ranks. Rank 0's role is hosted by this process, the others by `slime worker`
/// processes, which load the same model from the same configuration; on GPUs each has its own
/// (docs/decisions/0061-ranks.md, 0072-comm.md).

#include <chrono>
#include <memory>
#include <optional>

#include "cluster/workers.h"
#include "comm/socket_mesh.h"
#include "roles/trainer_role.h"
#include "roles/trainers.h"

namespace slime::roles {

/// One class because it is one group of ranks: their processes, their connections, and this one's part.
class TrainerWorkers final : public HostedTrainers {
 public:
  /// As start_trainers().
  TrainerWorkers(RankStart start, const cluster::RunIdentity& identity,
                 const std::filesystem::path& log_folder, cluster::Hosts& hosts,
                 const Clock& clock);
  ~TrainerWorkers() override;

  const comm::Mesh& connect() override;
  EngineGroup* engine_group() override { return group_ ? &*group_ : nullptr; }
  void open(model::Network& network, const train::TrainConfig& config,
            train::OtherNetworks others) override;
  void restore(const train::Checkpoint& checkpoint, uint32_t left_out,
               const train::Warn& warn) override;
  std::vector<int> start_engines(const EngineStart& start, model::Network& own) override;
  void wait_for_engines() override;
  train::TrainReport train(const train::TrainBatch& batch) override;
  void weights_published() override;
  void gather_weights(model::Network& whole) override;
  WeightChecksums weight_checksums() override;
  std::filesystem::path save(const train::CheckpointConfig& config, int64_t iteration,
                             const json::object& run) override;
  void release_memory() override;
  const std::atomic<bool>& has_failed() const override { return workers_->has_failed(); }
  void check_alive() override { workers_->check_alive(); }

 private:
  /// The ranks in processes of their own; they get their tasks before rank 0, which carries out its
  /// own on this thread.
  void tell_others(const TrainerTask& task);
  /// Calls `work`, in which collectives happen; when the ranks do not meet, finds out who is to
  /// blame.
  template <typename Fn>
  auto together(const Fn& work);

  comm::ParallelLayout layout_;
  bool is_on_gpus_;
  const cluster::RunIdentity identity_;
  const std::string address_;  // of this host
  const Clock& clock_;
  std::chrono::milliseconds timeout_;  // of a collective
  int num_train_threads_;              // of this process while all ranks train
  int ranks_of_engine_;
  bool engines_have_own_weights_;
  comm::Rendezvous rendezvous_;
  int port_;
  int64_t num_collectives_ = 0;  // begun by rank 0
  // They outlive the workers: who leaves first may leave alone.
  std::unique_ptr<comm::Mesh> mesh_;
  std::optional<EngineGroup> group_;
  std::optional<TrainerRole> own_;
  std::unique_ptr<cluster::Workers> workers_;
};

}  // namespace slime::roles
