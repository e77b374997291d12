#include "setup/cache_precision.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::setup {

std::string kv_cache_dtype(const config::RunConfig& config, at::ScalarType activations) {
  const std::string asked = config.kv_cache_dtype();
  if (!config.true_on_policy || activations != at::kFloat || asked == "float32") return asked;
  if (asked == "auto") return "float32";
  throw ConfigError(
      fmt::format("--true-on-policy: this processor computes a model of --dtype {} in float32, and "
                  "--sglang-kv-cache-dtype {} rounds that; leave it out",
                  config.dtype.get(), asked));
}

}  // namespace slime::setup
