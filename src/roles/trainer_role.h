#pragma once

/// The trainer role of a worker: the trainer of one rank and its place among the ranks. Where one
/// rank trains beside its engine on one device, that is the loop's own process (TrainersHere);
/// otherwise each rank has a `slime worker` (roles/worker.h), and what it is told comes as tasks.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "comm/socket_mesh.h"
#include "core/clock.h"
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

  /// kReshard brings the weights of all ranks into `engine`, which holds the model otherwise than the
  /// ranks do and outlives the role. All ranks call it together.
  void reshard_to(model::Network& engine);
  bool reshards() const { return reshard_.has_value(); }

 private:
  train::Trainer trainer_;
  std::optional<sync::Reshard> reshard_;
};

}  // namespace slime::roles
