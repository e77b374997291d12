#include "loop/trainer_role.h"

#include "comm/nccl_mesh.h"
#include "core/error.h"
#include "train/checkpoint.h"

namespace slime::loop {

std::unique_ptr<comm::Mesh> connect_ranks(bool is_on_gpus, const comm::GlooConfig& config,
                                          comm::Rendezvous* rendezvous) {
  return is_on_gpus ? comm::make_nccl_mesh(config, rendezvous)
                    : comm::make_gloo_mesh(config, rendezvous);
}

TrainerRole::TrainerRole(const comm::Mesh& mesh, model::Network& network,
                         const train::TrainConfig& config, train::OtherNetworks others,
                         const Clock& clock)
    : trainer_(network, config, clock, std::move(others), mesh) {}

std::optional<train::TrainReport> TrainerRole::carry_out(const TrainerTask& task) {
  switch (task.kind) {
    case RankTask::kTrain:
      return trainer_.train(task.share);
    case RankTask::kPublished:
      trainer_.weights_published();
      return {};
    case RankTask::kSave:
      train::join_save(trainer_, task.saves_optimizer);
      return {};
    case RankTask::kGather:
      train::gather_weights(trainer_, nullptr);
      return {};
    case RankTask::kRelease:
      trainer_.release_gradients();
      return {};
    case RankTask::kStart:
    case RankTask::kEngine:
      break;
  }
  throw BugError("a rank that has started gets tasks of its role");
}

}  // namespace slime::loop
