#include "engine/exact_steps.h"

#include <algorithm>

#include "engine/cache_shape.h"

namespace slime::engine {

bool has_exact_steps(const kernels::Gpu& gpu, model::Network& network,
                     const StepRunnerConfig& config) {
  const model::ModelConfig& model = network.config();
  const at::ScalarType type = network.weights().flat().scalar_type();
  const bool is_dense =
      !model.has_experts() && model.latent.kv_rank == 0 && model.delta.in_layer.empty();
  const bool has_windows =
      std::ranges::any_of(model.window, [](int64_t tokens) { return tokens > 0; });
  return is_dense && !has_windows && network.adapters() == nullptr && config.num_states == 0 &&
         config.kv_dtype == type && gpu.has_exact_attention(attention_heads(network), type);
}

}  // namespace slime::engine
