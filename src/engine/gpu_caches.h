#pragma once

/// Layout of an engine's caches on a GPU, all in one reservation of memory: keys, values, keys of indexers, states.
/// Pages have one more than there are, the spare one.

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "engine/cache_groups.h"
#include "engine/step_runner.h"
#include "kernels/gpu/memory.h"
#include "model/network.h"

namespace slime::engine {

/// Bytes of a page in all of its layers. Throws ConfigError where keys and values differ in size.
int64_t gpu_page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                       const CacheGroups& groups);

CacheGroups groups_of(const model::Network& network, const StepRunnerConfig& step);

/// Of the whole reservation.
int64_t memory_bytes(const model::Network& network, const StepRunnerConfig& step);

/// The first half holds the keys, the second the values; keys have all of it where values are a part of
/// them, and there are no others.
Tensor cache_half(const model::Network& network, const StepRunnerConfig& step,
                  const kernels::GpuMemory& memory, int half);
/// Undefined without indexers.
Tensor index_keys_of(const model::Network& network, const StepRunnerConfig& step,
                     const kernels::GpuMemory& memory);
/// Undefined where layers keep none.
Tensor states_of(const model::Network& network, const StepRunnerConfig& step,
                 const kernels::GpuMemory& memory);

}  // namespace slime::engine
