#include "engine/exact_steps.h"

#include <algorithm>

#include "engine/cache_shape.h"
#include "kernels/routed_experts.h"

namespace slime::engine {
namespace {

bool has_exact_experts(model::Network& network) {
  const model::ModelConfig& model = network.config();
  const model::ExpertsConfig& experts = model.experts;
  if (!model.has_experts()) return true;
  const kernels::ExpertKernels* kernels = kernels::expert_kernels_for(network.weights().flat());
  return kernels != nullptr && experts.has_one_choice() &&
         kernels->has_exact_experts(
             {model.hidden_size, experts.count, experts.width, experts.per_token});
}

}  // namespace

bool has_exact_steps(const kernels::Gpu& gpu, model::Network& network,
                     const StepRunnerConfig& config) {
  const model::ModelConfig& model = network.config();
  const at::ScalarType type = network.weights().flat().scalar_type();
  const bool has_layers =
      has_exact_experts(network) && model.latent.kv_rank == 0 && model.delta.in_layer.empty();
  const bool has_windows =
      std::ranges::any_of(model.window, [](int64_t tokens) { return tokens > 0; });
  return has_layers && !has_windows && network.adapters() == nullptr && config.num_states == 0 &&
         config.kv_dtype == type && gpu.has_exact_attention(attention_heads(network), type);
}

}  // namespace slime::engine
