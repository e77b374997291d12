#include "engine/step_runner.h"

#include "core/error.h"
#include "engine/cache_groups.h"
#include "engine/gpu_caches.h"
#include "engine/gpu_runner.h"
#include "engine/model_runner.h"
#include "model/weight_checksums.h"

namespace slime::engine {

std::vector<kernels::SampledToken> StepRunner::take_scores(std::size_t) {
  throw BugError("this runner does not score prompts");
}

std::vector<kernels::SampledToken> StepRunner::take_behind_drafts(std::size_t) {
  throw BugError("this runner does not verify drafts");
}

std::vector<Draft> StepRunner::take_foretold(std::size_t) {
  throw BugError("this runner has no draft layer");
}

void StepRunner::append_experts(const CachedRows&, std::vector<int16_t>&) const {
  throw BugError("this runner does not record experts");
}

WeightChecksums StepRunner::checksums_of(model::Weights& weights, bool resets) {
  if (resets) model::fill_with_noise(weights);
  return model::checksums_of(weights);
}

at::ScalarType kv_storage_type(const std::string& kv_cache_dtype, model::Network& network) {
  const Tensor& weights = network.weights().flat();
  // On a GPU the attention kernels read the cache in fp8 or in the precision of the activations.
  if (kv_cache_dtype == "fp8_e4m3") return at::kFloat8_e4m3fn;
  if (weights.is_cuda()) return weights.scalar_type();
  if (kv_cache_dtype == "float32") return at::kFloat;
  if (kv_cache_dtype == "bfloat16") return at::kBFloat16;
  return weights.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

int64_t kv_page_bytes(model::Network& network, at::ScalarType kv_dtype, int64_t num_window_groups) {
  const CacheGroups groups =
      cache_groups(network.blocks(), network.config().window, num_window_groups);
  return network.weights().flat().is_cuda()
             ? gpu_page_bytes(network.blocks(), kv_dtype, groups)
             : PagedKvCache::page_bytes(network.blocks(), kv_dtype, groups);
}

std::unique_ptr<StepRunner> make_step_runner(model::Network& network,
                                             const StepRunnerConfig& config) {
  if (network.weights().flat().is_cuda()) return std::make_unique<GpuRunner>(network, config);
  return std::make_unique<ModelRunner>(network, config);
}

}  // namespace slime::engine
