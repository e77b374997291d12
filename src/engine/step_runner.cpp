#include "engine/step_runner.h"

#include "engine/gpu_runner.h"
#include "engine/model_runner.h"

namespace slime::engine {

int64_t kv_page_bytes(model::Network& network, at::ScalarType kv_dtype) {
  return network.weights().flat().is_cuda() ? GpuRunner::page_bytes(network.config(), kv_dtype)
                                            : PagedKvCache::page_bytes(network.config(), kv_dtype);
}

std::unique_ptr<StepRunner> make_step_runner(model::Network& network,
                                             const StepRunnerConfig& config) {
  if (network.weights().flat().is_cuda()) return std::make_unique<GpuRunner>(network, config);
  return std::make_unique<ModelRunner>(network, config);
}

}  // namespace slime::engine
