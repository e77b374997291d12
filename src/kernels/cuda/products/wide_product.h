#pragma once

/// A matrix product of a decode step of 65 to 256 sequences with epilogue SwiGLU or split-K.
///
/// Bound by the tensor cores, and in its prologue and epilogue by latency. Products that only store
/// their result are left to cuBLASLt, which is as fast there.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products/batch_product.h"

namespace slime::kernels::cuda {

/// True for bfloat16, 65 to 256 rows and compute capability 9.0.
bool has_wide_product(Number number, int64_t rows);
/// S of a product with Epilogue::kSplitK.
int wide_product_splits(int inputs, int outputs);
/// As batch_product(), with Epilogue::kSwiglu or kSplitK and one adapter for all rows. Throws std::logic_error for another
/// call.
void wide_product(const BatchProduct& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
