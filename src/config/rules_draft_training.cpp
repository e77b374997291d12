// --enable-mtp-training: which runs train the model's draft layer.

#include <fmt/format.h>

#include <string_view>

#include "config/rules.h"

namespace slime::config {

void check_draft_training(const RunConfig& config, Problems& problems) {
  if (!config.enable_mtp_training || config.debug_rollout_only) return;
  problems.require(
      config.mtp_loss_scaling_factor > 0,
      fmt::format("--mtp-loss-scaling-factor {}: is above 0", config.mtp_loss_scaling_factor));
  const auto excludes = [&](bool has, std::string_view other, std::string_view why) {
    problems.require(
        !has, fmt::format("--enable-mtp-training: not with {}: {}; leave it out", other, why));
  };
  excludes(config.is_on_gpus(), fmt::format("--device {}", config.device),
           "the layer is trained on CPUs so far");
  const bool divides_model =
      config.tensor_model_parallel_size > 1 || config.pipeline_model_parallel_size > 1 ||
      config.context_parallel_size > 1 || config.expert_model_parallel_size > 1;
  excludes(divides_model, "tensor, pipeline, context or expert parallelism",
           "the layer is trained where each rank has the whole model");
  excludes(config.trains_adapters(), "adapters", "the model's own weights stay as they are");
  excludes(config.takes_requests, "steps by requests", "their losses are of the policy alone");
}

}  // namespace slime::config
