#pragma once

/// Each kernel of engine and trainer alone, in the shape of a model of bench/gpu/workloads.json.

#include <string>

#include "bench/made_up_model.h"
#include "kernels/gpu/limits.h"
#include "model/config.h"

namespace slime::bench {

struct GpuKernelOptions {
  ShapeOptions shape;
  std::string only;  // kernels whose name holds this
};

/// Opens the GPU. Prints one JSON line per kernel (bench/kernel_timing.h).
void measure_gpu_kernels(const GpuKernelOptions& options);

/// Of those, products, norms and sampling as the engine's steps call them.
void measure_step_kernels(const model::ModelConfig& config, const kernels::GpuLimits& limits,
                          const std::string& only);
/// Attention over keys and values in pages, with what it writes there.
void measure_paged_attention(const model::ModelConfig& config, const kernels::GpuLimits& limits,
                             const std::string& only);
/// Sparse attention of a layer of DeepSeek-V3.2 in decode: the choice of tokens, and attention to them.
void measure_sparse_kernels(const kernels::GpuLimits& limits, const std::string& only);
/// What a training step of 8 x 2,048 tokens calls.
void measure_training_kernels(const model::ModelConfig& config, const kernels::GpuLimits& limits,
                              const std::string& only);

}  // namespace slime::bench
