#pragma once

/// The precision of a run's KV cache.

#include <string>

#include "config/run_config.h"
#include "core/tensor.h"

namespace slime::setup {

/// kv_cache_dtype of EngineConfig where the model computes in `activations`. With --true-on-policy the
/// cache keeps what the trainer computes with, so that the engine does not round keys and values that the
/// trainer does not: a processor without instructions for bfloat16 computes in float32. Throws
/// ConfigError where the flags name another precision.
std::string kv_cache_dtype(const config::RunConfig& config, at::ScalarType activations);

}  // namespace slime::setup
