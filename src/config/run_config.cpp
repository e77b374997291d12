#include "config/run_config.h"

namespace slime::config {

std::string EngineFlags::kv_cache_dtype() const {
  return sglang_kv_cache_dtype == "bf16" ? "bfloat16" : sglang_kv_cache_dtype.get();
}

int64_t RunConfig::samples_per_step() const {
  return global_batch_size.value_or(samples_per_rollout());
}

}  // namespace slime::config
