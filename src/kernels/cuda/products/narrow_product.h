#pragma once

/// A matrix product of a decode step of one or two sequences, with the norm before it and what
/// follows it.
///
/// Bound by what passes between kernels: so a norm has none of its own. Each block adds up and
/// norms all inputs while its weights are on their way.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products/batch_product.h"

namespace slime::kernels::cuda {

/// x of a product: s = bfloat16(residual + added), divided by its root mean square, times weight.
struct NormedInput {
  const void* residual_TI = nullptr;  // bfloat16
  const float* added_TI = nullptr;
  const void* weight_I = nullptr;  // bfloat16; null: the product has x as it is
  void* sum_TI = nullptr;          // s; not the residual's place
  float eps = 0;
};

/// bfloat16, at most two rows, compute capability 9.0; x has room in shared memory.
bool has_narrow_product(Number number, int64_t rows, int64_t inputs);
/// As batch_product(), with Ending::kStore or kSwiglu; call.x_TI is not read where there is a norm.
void narrow_product(const BatchProduct& call, const NormedInput& norm, cudaStream_t stream);

}  // namespace slime::kernels::cuda
