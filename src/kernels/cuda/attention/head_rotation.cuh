#pragma once

/// Norm and rotation of one head, operation by operation: whichever kernel makes a key, its bits
/// are the same.
///
/// A pair is number i of a head and number i + D / 2, for i < D / 2. Squares are added up as a tree
/// over the pairs: neighbours first (i and i ^ 1), then i ^ 2, i ^ 4, ... So the sum does not
/// depend on how many neighbouring pairs a lane has.

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

__device__ inline float square_sum(float a, float b) { return fma_rn(a, a, product_rn(b, b)); }

/// The tree over what one lane has: a power of two.
template <int kCount>
__device__ float neighbour_sum(const float (&x)[kCount]) {
  float sum[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i] = x[i];
#pragma unroll
  for (int step = 1; step < kCount; step *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2 * step) sum[i] += sum[i + step];
  }
  return sum[0];
}

/// The tree over `kLanes` neighbouring lanes, in each of them.
template <int kLanes>
__device__ float lane_sum(float x) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) x += shuffle_xor(x, step);
  return x;
}

__device__ inline float norm_scale(float squares, int head_dim, float eps) {
  return rsqrtf(squares / static_cast<float>(head_dim) + eps);
}

__device__ inline float normed(float x, float scale, float weight) {
  return product_rn(x, product_rn(scale, weight));
}

__device__ inline void rotate_pair(float& a, float& b, float cosine, float sine) {
  const float rotated = fma_rn(a, cosine, -product_rn(b, sine));
  b = fma_rn(b, cosine, product_rn(a, sine));
  a = rotated;
}

}  // namespace slime::kernels::cuda
