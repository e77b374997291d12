#pragma once

/// Sums of numbers that lie apart in memory, in their order.
///
/// A load past the L1 cache (`load_past_l1`) is not moved by the compiler, neither over another one nor over
/// the branch that ends a loop. A loop that loads and adds therefore waits for the second level cache
/// in each round. Here the loads of several rounds come first.

#include <cstdint>

#include "kernels/cuda/vendor/vendor.cuh"

namespace slime::kernels::cuda {

#if SLIME_DEVICE_CODE

__device__ inline void add_to(float4& sum, const float4& x) {
  sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
}

/// Adds `count` numbers, `stride` apart, of which kAtOnce are asked for at once.
template <int kAtOnce>
__device__ inline void add_partials(float4& sum, const float4* from, int64_t stride, int count) {
#pragma unroll 1
  for (int begin = 0; begin < count; begin += kAtOnce) {
    float4 partial[kAtOnce];
#pragma unroll
    for (int p = 0; p < kAtOnce; ++p)
      if (begin + p < count) partial[p] = load_past_l1(from + (begin + p) * stride);
#pragma unroll
    for (int p = 0; p < kAtOnce; ++p)
      if (begin + p < count) add_to(sum, partial[p]);
  }
}

#endif

}  // namespace slime::kernels::cuda
