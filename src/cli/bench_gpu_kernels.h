#pragma once

/// `slime bench kernels --device cuda`: each kernel of engine and trainer alone, in the shape of a
/// model of bench/gpu/workloads.json.

#include <string>

#include "kernels/gpu/limits.h"
#include "model/config.h"

namespace slime::cli {

/// One JSON line per kernel (cli/kernel_timing.h) whose name holds `only`; all when it is empty.
/// The GPU is open.
void bench_gpu_kernels(const model::ModelConfig& config, const std::string& only);

/// Of those, products, norms and sampling as the engine's steps call them.
void bench_step_kernels(const model::ModelConfig& config, const kernels::GpuLimits& limits,
                        const std::string& only);
/// Attention over keys and values in pages, with what it writes there.
void bench_paged_attention(const model::ModelConfig& config, const kernels::GpuLimits& limits,
                           const std::string& only);
/// What a training step of 8 x 2,048 tokens calls.
void bench_training_kernels(const model::ModelConfig& config, const kernels::GpuLimits& limits,
                            const std::string& only);

}  // namespace slime::cli
