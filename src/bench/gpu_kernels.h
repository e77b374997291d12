#pragma once

/// Each kernel of engine and trainer alone, in the shape of a model of bench/gpu/workloads.json. The
/// GPU is open; each prints its lines (bench/harness.h).

#include "bench/harness.h"
#include "model/config.h"

namespace slime::bench {

/// Products, norms and sampling as the engine's steps call them.
void measure_step_kernels(const model::ModelConfig& config, const KernelLines& lines);
/// Attention over keys and values in pages, with what it writes there.
void measure_paged_attention(const model::ModelConfig& config, const KernelLines& lines);
/// Sparse attention of a layer of DeepSeek-V3.2 in decode: the choice of tokens, and attention to them.
void measure_sparse_kernels(const KernelLines& lines);
/// Training arithmetic (docs/exact.md) next to other runs': lines "exact-..." and "fast-...".
void measure_exact_kernels(const model::ModelConfig& config, const KernelLines& lines);
/// What a training step of 8 x 2,048 tokens calls.
void measure_training_kernels(const model::ModelConfig& config, const KernelLines& lines);

}  // namespace slime::bench
