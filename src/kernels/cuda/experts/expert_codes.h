#pragma once

/// The products of experts in a decode step whose weights are e4m3 codes with blocks' factors: half the bytes of
/// kernels/cuda/experts/expert_product.h (compute capability 9.0).
///
///   y(v, u) = sum over blocks c of 128 inputs: x_factor(v, c) factor(expert(v), row(u), c) dot_c(v, u)
///
/// x is bfloat16 in memory, and becomes codes in blocks of 1 x 128 on its way to the products (docs/how/experts.md).

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/experts/expert_product.h"

namespace slime::kernels::cuda {

/// Device memory, contiguous, the codes 16-byte aligned. C = inputs / 128, rounded up.
struct ExpertCodes {
  /// Its weights are the codes, bytes. Inputs are a multiple of 16, units one of 8.
  ExpertProduct product;
  const float* factors_EBC = nullptr;
  const int64_t* factor_row_U =
      nullptr;          // of each output of an expert, [2U] of gates and ups: below B
  int factor_rows = 0;  // B
  /// Of at most kMostPartRows rows, not gated: instead of y, what each visit returns times its weight, float32, as K
  /// partial sums of the rows. Null: y.
  float* parts_KTU = nullptr;
  const float* visit_weight_V = nullptr;
};
inline constexpr int kMostPartRows = 128;

/// Whether sizes are within reach.
bool has_expert_codes(int64_t rows, int64_t per_token, int64_t experts, int64_t inputs,
                      int64_t units);

/// As expert_product().
void expert_codes(const ExpertCodes& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
