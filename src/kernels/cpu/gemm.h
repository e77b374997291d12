#pragma once

/// Matrix products in float32 with a second factor in float32, bfloat16 or float16, for processors
/// with AVX2.
///
///   C[M, N] = A[M, K] B[K, N]        or, accumulating,  C += A B
///
/// Any strides with one of them 1, so that y = x W^T, dx = dy W and dW += dy^T x are the same code.
/// B is converted and packed 16 columns at a time into a buffer that stays in the first-level
/// cache; narrow weights cross the memory bus narrow. Each element of C is the sum over k in
/// ascending order, one fused multiply-add each, whatever M, N, the threads and the blocks are: a
/// row's result does not depend on its neighbours.
///
/// Structure after Van Zee and van de Geijn, "BLIS", ACM TOMS 41(3), 2015.

#include "core/tensor.h"

namespace slime::kernels::cpu {

/// A(i, k) = data[i * row_stride + k * k_stride].
struct LeftFactor {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t k_stride = 0;
};

/// B(k, j) = data[k * k_stride + j * column_stride], kFloat, kBFloat16 or kHalf.
struct RightFactor {
  const void* data = nullptr;
  at::ScalarType dtype = at::kFloat;
  int64_t k_stride = 0;
  int64_t column_stride = 0;
};

struct GemmSize {
  int64_t m = 0, n = 0, k = 0;
};

/// C has rows of ldc floats. With k = 0 it becomes zero or stays.
void gemm(const GemmSize& size, const LeftFactor& a, const RightFactor& b, float* c, int64_t ldc,
          bool accumulate);

}  // namespace slime::kernels::cpu
