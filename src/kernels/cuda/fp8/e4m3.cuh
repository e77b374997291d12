#pragma once

/// Codes of float8 e4m3 and the factors of blocks of 128 (docs/decisions/0127-fp8-rollout.md).
///
///   factor = max(amax, 1e-4) / 448      code = e4m3(x / factor), nearest, ties to even
///
/// Both quotients are those of an exact division: the same codes as kernels/matrix_formats.cpp makes.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda::fp8 {

inline constexpr int kBlock = 128;
inline constexpr float kLargest = 448, kSmallestAmax = 1e-4F;

#if SLIME_DEVICE_CODE

__device__ inline float factor_of(float amax) {
  return quotient_rn(fmaxf(amax, kSmallestAmax), kLargest);
}

__device__ inline float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, shuffle_xor(x, offset));
  return x;
}

__device__ inline float largest(const float4& x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

/// Four codes, the first in the lowest byte. What is beyond the largest code becomes that. Quotients by
/// Markstein's theorem: the correctly rounded reciprocal, and one correction by the exact remainder, give the
/// correctly rounded quotient, in three operations. Factors are neither tiny nor huge. reciprocal: reciprocal_rn(factor).
__device__ inline uint32_t codes_of(const float4& x, float factor, float reciprocal) {
  const auto quotient = [&](float number) {
    const float near = product_rn(number, reciprocal);
    const float exact = fma_rn(fma_rn(-near, factor, number), reciprocal, near);
    return copysignf(exact, number);  // zeros have a sign
  };
  const auto two = [&](float low, float high) { return pack_fp8(quotient(low), quotient(high)); };
  return two(x.x, x.y) | two(x.z, x.w) << 16;
}

__device__ inline uint32_t codes_of(const float4& x, float factor) {
  return codes_of(x, factor, reciprocal_rn(factor));
}

#endif

}  // namespace slime::kernels::cuda::fp8
