#pragma once

/// y = silu(x gate^T) * (x up^T) for prompts: products of many rows whose epilogue is SwiGLU.
///
/// Bound by the tensor cores. What a product by itself would write and SwiGLU read again, gates and ups
/// of all rows, stays in registers. A row's numbers are the same bits whatever the other rows are.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Pointers are device memory, bfloat16, contiguous, 16-byte aligned. T rows, I inputs, F units.
struct GatedProduct {
  const void* x_TI = nullptr;
  const void* weight_2FI = nullptr;  // gates, then ups
  const void* bias_2F = nullptr;     // null: none
  /// C more inputs, a multiple of 64, behind those of x and of the weights: of adapters (LowRankColumns).
  const void* more_TC = nullptr;
  const void* more_weight_2FC = nullptr;
  int64_t more_inputs = 0;
  int64_t rows = 0, inputs = 0, units = 0;
  void* y_TF = nullptr;
  int processors_left = 0;  // to what runs beside it
};

/// True for bfloat16, more than 768 rows, I a multiple of 64, F one of eight and at least 128, and
/// compute capability 9.0.
bool has_gated_product(Number number, int64_t rows, int64_t inputs, int64_t units);

/// Asynchronous on `stream`. Throws std::runtime_error for other sizes or a failed launch.
void gated_product(const GatedProduct& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
