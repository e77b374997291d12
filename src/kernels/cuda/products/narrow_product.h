#pragma once

/// A matrix product of a decode step of one or two sequences, with the RMS norm fused as its
/// prologue and with its epilogue.
///
/// Bound by the latency between kernels: so the norm has none of its own. Each thread block adds
/// and norms all inputs while its weights are in flight.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products/batch_product.h"

namespace slime::kernels::cuda {

/// x of a product: s = bfloat16(residual + added), divided by its root mean square, times weight.
/// Device memory, contiguous, 16-byte aligned.
struct NormPrologue {
  const void* residual_TI = nullptr;  // bfloat16
  const float* added_TI = nullptr;    // null: none
  const void* visits_TKI = nullptr;  // bfloat16, also added, the weighted sum of K rows; null: none
  const float* visit_weight_TK = nullptr;
  int per_token = 0;               // K
  const void* weight_I = nullptr;  // bfloat16; null: the product has x as it is
  void* sum_TI = nullptr;          // bfloat16, result s; must not alias the residual
  float eps = 0;
};

/// True for bfloat16, at most two rows, compute capability 9.0 and an x that fits into shared
/// memory.
bool has_narrow_product(Number number, int64_t rows, int64_t inputs);
/// As batch_product(), with Epilogue::kStore or kSwiglu; call.x_TI is not read where there is a
/// norm. Throws std::runtime_error where has_narrow_product() is false.
void narrow_product(const BatchProduct& call, const NormPrologue& norm, cudaStream_t stream);

}  // namespace slime::kernels::cuda
