#pragma once

/// Trainer of one rank and its place among the ranks, in a `slime worker` (roles/worker.h): what it
/// is told comes as tasks. A run of one process has its trainer in that (TrainersHere).

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "comm/socket_mesh.h"
#include "core/clock.h"
#include "model/stored_parts.h"
#include "roles/rank_tasks.h"
#include "sync/reshard.h"
#include "train/trainer.h"

namespace slime::roles {

/// Over NCCL where the ranks are on GPUs, which are open, otherwise over sockets.
std::unique_ptr<comm::Mesh> connect_ranks(bool is_on_gpus, const comm::SocketMeshConfig& config,
                                          comm::Rendezvous* rendezvous);

class TrainerRole final {
 public:
  /// `mesh`, `network`, whose weights are trained, and `clock` outlive the role.
  TrainerRole(const comm::Mesh& mesh, model::Network& network, const train::TrainConfig& config,
              train::OtherNetworks others, const Clock& clock);

  /// Does what all ranks are told; they do it together. `answer` sends the controller what
  /// roles/rank_tasks.h says. Throws comm::GroupError when the others cannot be reached.
  void carry_out(const TrainerTask& task, const std::function<void(std::string_view)>& answer);

  train::Trainer& trainer() { return trainer_; }
  const train::Trainer& trainer() const { return trainer_; }

  /// kBring brings the weights of all ranks into `engine`, which each of them has, holds the model
  /// otherwise than the ranks do and outlives the role. Where it has codes each rank makes those of its
  /// slices first. All ranks call it together. Throws ConfigError where such slices cut blocks.
  void reshard_to(model::Network& engine);
  /// The same into `whole`, a network of the whole model that rank 0 alone has; null on the others.
  void gather_to(model::Network* whole) {
    gathers_ = true;
    whole_ = whole;
  }
  /// What kBring does; all ranks call it together. Nothing where engines read what is trained.
  void bring_weights();

 private:
  const model::StoredForms& forms_of(kernels::MatrixFormat matrices);

  train::Trainer trainer_;
  std::optional<model::StoredForms> forms_;  // of what was gathered last
  std::unique_ptr<model::Network> codes_;    // of this rank's slices, where engines have some
  std::optional<sync::Reshard> reshard_;
  bool gathers_ = false;
  model::Network* whole_ = nullptr;
};

}  // namespace slime::roles
