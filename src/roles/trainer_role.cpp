#include "roles/trainer_role.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>

#include "comm/nccl_mesh.h"
#include "core/error.h"
#include "train/checkpoint.h"
#include "train/rank_report.h"
#include "train/whole_tensors.h"

namespace slime::roles {
namespace {

/// Of one frame: what the controller has taken is written into its network while the next comes.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

using Answer = std::function<void(std::string_view)>;

void send_weights(train::Trainer& trainer, const model::StoredForms& forms, const Answer& answer) {
  const auto send = [&](const std::string& name, const Tensor& whole) {
    const Tensor tensor = whole.to(at::kCPU).contiguous();
    const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
    const auto size = static_cast<int64_t>(tensor.nbytes());
    for (int64_t offset = 0; offset < size; offset += kPieceBytes) {
      const auto length = static_cast<std::size_t>(std::min(kPieceBytes, size - offset));
      answer(to_frame(NamedPiece{.name = name,
                                 .offset = static_cast<uint64_t>(offset),
                                 .bytes = {bytes + offset, length}}));
    }
  };
  train::gather_weights(trainer, [&](const std::string& name, const Tensor& whole) {
    for (const auto& part : forms.parts_of(name, whole)) send(part.name, part.value);
  });
  const auto constants = train::whole_constants(trainer.mesh(), trainer.network().weights());
  if (trainer.mesh().rank() > 0) return;
  for (const model::NamedConstant& constant : constants) send(constant.name, constant.value);
  answer("");
}

/// What is the same on all ranks is read of the first alone, what is of samples of each.
void train_share(train::Trainer& trainer, const train::BatchShare& share, const Answer& answer) {
  answer(train::to_frame(trainer.train(share)));
}

void save(train::Trainer& trainer, const SaveTask& task, const Answer& answer) {
  if (trainer.mesh().rank() > 0) return train::join_save(trainer, task.config.save_optimizer);
  answer(train::save_checkpoint(task.config, task.iteration, trainer, task.run).string());
}

}  // namespace

std::unique_ptr<comm::Mesh> connect_ranks(bool is_on_gpus, const comm::SocketMeshConfig& config,
                                          comm::Rendezvous* rendezvous) {
  return is_on_gpus ? comm::make_nccl_mesh(config, rendezvous)
                    : comm::make_socket_mesh(config, rendezvous);
}

TrainerRole::TrainerRole(const comm::Mesh& mesh, model::Network& network,
                         const train::TrainConfig& config, train::OtherNetworks others,
                         const Clock& clock)
    : trainer_(network, config, clock, std::move(others), mesh) {}

void TrainerRole::reshard_to(model::Network& engine) {
  const model::Weights* from = &trainer_.network().trained();
  if (engine.trained().has_formats()) {
    codes_ = model::make_blank_network(trainer_.network().config(),
                                       {.weights = from->flat().scalar_type(),
                                        .activations = at::kFloat,
                                        .matrices = engine.trained().matrices(),
                                        .device = from->flat().device()},
                                       trainer_.mesh());
    from = &codes_->trained();
  }
  reshard_.emplace(trainer_.mesh(), *from, engine.trained());
}

void TrainerRole::bring_weights() {
  if (codes_) {
    const at::NoGradGuard no_grad;
    codes_->trained().copy_from(trainer_.network().trained());
  }
  if (reshard_) reshard_->run();
  if (gathers_) train::gather_weights(trainer_, whole_);
  const Tensor& trained_N = trainer_.network().weights().flat();
  if (trained_N.is_cpu()) return;
  // sync: the engine's thread reads them.
  c10::impl::VirtualGuardImpl(trained_N.device().type())
      .getStream(trained_N.device())
      .synchronize();
}

/// Rank 0 alone makes codes of what it gathers.
const model::StoredForms& TrainerRole::forms_of(kernels::MatrixFormat matrices) {
  if (trainer_.mesh().rank() > 0) matrices = kernels::MatrixFormat::kPlain;
  if (!forms_ || forms_->matrices() != matrices)
    forms_.emplace(trainer_.network().config(), matrices);
  return *forms_;
}

void TrainerRole::carry_out(const TrainerTask& task, const Answer& answer) {
  switch (task.kind) {
    case RankTask::kTrain:
      return train_share(trainer_, task.share, answer);
    case RankTask::kPublished:
      return trainer_.weights_published();
    case RankTask::kSave:
      return save(trainer_, task.save, answer);
    case RankTask::kGather:
      return send_weights(trainer_, forms_of(task.matrices), answer);
    case RankTask::kBring:
      bring_weights();
      return answer("");
    case RankTask::kChecksums: {
      const WeightChecksums checksums = train::whole_checksums(trainer_, task.matrices);
      if (trainer_.mesh().rank() == 0) answer(to_frame(checksums));
      return;
    }
    case RankTask::kRelease:
      return trainer_.release_gradients();
    case RankTask::kStart:
    case RankTask::kMeet:
    case RankTask::kEngine:
    case RankTask::kFollow:
    case RankTask::kBeginPhase:
    case RankTask::kMemory:
      break;
  }
  throw BugError("a rank that has started gets tasks of its role");
}

}  // namespace slime::roles
