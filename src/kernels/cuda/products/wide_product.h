#pragma once

/// A matrix product of a decode step of 65 to 256 sequences that ends with SwiGLU or with parts.
///
/// Bound by multiplying, and at its ends by everything else. What only stores its result is
/// cuBLASLt's to multiply: it is as fast there.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products/batch_product.h"

namespace slime::kernels::cuda {

/// bfloat16, 65 to 256 rows, compute capability 9.0.
bool has_wide_product(Number number, int64_t rows);
/// P of a product that ends with parts.
int wide_product_parts(int inputs, int outputs);
/// As batch_product(), with Ending::kSwiglu or kParts.
void wide_product(const BatchProduct& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
