#pragma once

/// Matrices of shared memory as operands of `mma`, and the merge of partial results.

#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::latent {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// Where a lane's line is of [16, 16] numbers at `first`: as operand a, rows by numbers, through load_matrices(); as
/// two operands b side by side, inputs by outputs as memory has them, through load_turned(), the first in registers 0
/// and 1, the second in 2 and 3.
__device__ inline uint32_t line_of_sixteen(uint32_t first, int pitch_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return first + (lane % 16) * pitch_bytes + 16 * (lane / 16);
}

/// Four numbers of the attended latent of a row and head, from its records [first, first + count).
__device__ inline float4 merged_four(const DecodeArrays& plan, int num_heads, int first, int count,
                                     int head, int four) {
  const float2* weights = plan.record_weights + static_cast<int64_t>(first) * num_heads + head;
  const auto* sums = reinterpret_cast<const float4*>(plan.record_sums) +
                     (static_cast<int64_t>(first) * num_heads + head) * (kLatentRank / 4) + four;
  float largest = -INFINITY;
  for (int r = 0; r < count; ++r)
    largest = fmaxf(largest, __ldcg(weights + static_cast<int64_t>(r) * num_heads).x);
  float total = 0;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int r = 0; r < count; ++r) {
    const float2 weight = __ldcg(weights + static_cast<int64_t>(r) * num_heads);
    const float4 x = __ldcg(sums + static_cast<int64_t>(r) * num_heads * (kLatentRank / 4));
    const float share = exp2f(weight.x - largest);
    total += share * weight.y;
    sum.x += share * x.x, sum.y += share * x.y, sum.z += share * x.z, sum.w += share * x.w;
  }
  const float scale = 1 / total;
  return make_float4(sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale);
}

#endif

}  // namespace slime::kernels::cuda::latent
