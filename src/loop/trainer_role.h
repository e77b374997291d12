#pragma once

/// The trainer role of a worker: the trainer of one rank and its place among the ranks. Where one
/// rank trains beside its engine on one device, that is the loop's own process (TrainersHere);
/// otherwise each rank has a `slime worker` (loop/worker.h), and what it is told comes as tasks.

#include <functional>
#include <string>
#include <string_view>

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

  /// Does what all ranks are told; they do it together. `answer` sends the controller what
  /// loop/rank_tasks.h says. Throws comm::GroupError when the others cannot be reached.
  void carry_out(const TrainerTask& task, const std::function<void(std::string_view)>& answer);

  train::Trainer& trainer() { return trainer_; }

 private:
  train::Trainer trainer_;
};

}  // namespace slime::loop
