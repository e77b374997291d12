#pragma once

/// The trainer role of a worker: the trainer of one rank and its place among the ranks.
///
/// A worker hosts roles. Rank 0's worker is the loop's own process, because the engine there reads
/// the weights that the role trains; those of the other ranks are `slime worker` processes
/// (loop/worker.h). The role and what it is told are the same; only the way the words take differs.

#include <memory>
#include <optional>

#include "comm/gloo_mesh.h"
#include "comm/mesh.h"
#include "core/clock.h"
#include "loop/rank_tasks.h"
#include "train/trainer.h"

namespace slime::loop {

/// Over NCCL where the ranks are on GPUs, which are open, otherwise over Gloo.
std::unique_ptr<comm::Mesh> connect_ranks(bool is_on_gpus, const comm::GlooConfig& config,
                                          comm::Rendezvous* rendezvous);

class TrainerRole final {
 public:
  /// `mesh`, `network`, whose weights are trained, and `clock` outlive the role.
  TrainerRole(const comm::Mesh& mesh, model::Network& network, const train::TrainConfig& config,
              train::OtherNetworks others, const Clock& clock);

  /// Does what all ranks are told; they do it together. A report for kTrain, else nothing. Throws
  /// comm::GroupError when the others cannot be reached.
  std::optional<train::TrainReport> carry_out(const TrainerTask& task);

  train::Trainer& trainer() { return trainer_; }

 private:
  train::Trainer trainer_;
};

}  // namespace slime::loop
