#pragma once

/// Codes of bfloat16 rows on their way into a pipeline stage: a warp makes those of blocks of 128 inputs of four rows
/// at once. Eight lanes share a row; each has eight inputs of either half of the block, so that loads are of whole
/// sectors. Bits as quantise_rows() makes them.

#include "kernels/cuda/fp8/e4m3.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::fp8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A lane's inputs of a block: eight from 8 * (lane % 8) on, and eight of which each is 64 behind one of those.
struct Sixteen {
  uint4 half[2];
};

/// `from`: the first of them; `inputs`: from there to the row's end, multiples of 8. What is beyond is zero. Past the
/// L1 cache, which may hold what another kernel read here before it was complete.
__device__ inline Sixteen load_sixteen(const __nv_bfloat16* from, int inputs) {
  Sixteen x;
#pragma unroll
  for (int h = 0; h < 2; ++h)
    x.half[h] = inputs > 64 * h ? __ldcg(reinterpret_cast<const uint4*>(from + 64 * h))
                                : make_uint4(0, 0, 0, 0);
  return x;
}

/// Of two pairs of bfloat16: the larger magnitudes.
__device__ inline uint32_t larger(uint32_t a, uint32_t b) {
  const auto magnitudes = [](uint32_t pair) {
    return __habs2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  };
  const __nv_bfloat162 most = __hmax2(magnitudes(a), magnitudes(b));
  return *reinterpret_cast<const uint32_t*>(&most);
}

/// The largest magnitude of the eight lanes' block.
__device__ inline float largest_of_block(const Sixteen& x) {
  const uint4 &a = x.half[0], &b = x.half[1];
  uint32_t most = larger(larger(larger(a.x, a.y), larger(a.z, a.w)),
                         larger(larger(b.x, b.y), larger(b.z, b.w)));
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2)
    most = larger(most, __shfl_xor_sync(0xffffffffU, most, offset));
  const float2 two = unpack<__nv_bfloat16>(most);
  return fmaxf(two.x, two.y);
}

/// factor_of() without a branch around which nothing moves: by Markstein's theorem, as codes_of(), of finite numbers
/// the quotient of an exact division.
__device__ inline float factor_of_block(float amax) {
  constexpr float kReciprocal = 1 / kLargest;
  const float number = fmaxf(amax, kSmallestAmax), near = product_rn(number, kReciprocal);
  return fma_rn(fma_rn(-near, kLargest, number), kReciprocal, near);
}

/// 1 / factor, correctly rounded, likewise: one Newton step is enough for every factor of a block of bfloat16 if the
/// approximation is within two units in the last place.
__device__ inline float reciprocal_of(float factor) {
  const float near = reciprocal_flushed(factor);
  return fma_rn(fma_rn(-factor, near, 1.0F), near, near);
}

/// Codes of a row to shared memory, [row, 128] from a multiple of 1024 on, if it is there. Pieces of 16 bytes are
/// swizzled as those of a TMA copy. Reads by the async proxy need a fence of each lane that wrote.
__device__ inline void write_codes(uint32_t to, int row, bool is_there, const Sixteen& x,
                                   float factor) {
  const float reciprocal = reciprocal_of(factor);
  const auto codes = [&](uint32_t low, uint32_t high) {
    const float2 a = unpack<__nv_bfloat16>(low), b = unpack<__nv_bfloat16>(high);
    return codes_of(make_float4(a.x, a.y, b.x, b.y), factor, reciprocal);
  };
  const int eight = threadIdx.x % 8;
  const uint32_t low = to + 128 * row + ((eight / 2 ^ row % 8) << 4) + 8 * (eight % 2);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint4& half = x.half[h];
    asm volatile(
        "{\n.reg .pred is_there;\nsetp.ne.b32 is_there, %3, 0;\n"
        "@is_there st.shared.v2.u32 [%0], {%1, %2};\n}\n" ::"r"(low ^ (64 * h)),
        "r"(codes(half.x, half.y)), "r"(codes(half.z, half.w)), "r"(static_cast<int>(is_there))
        : "memory");
  }
}

#endif

}  // namespace slime::kernels::cuda::fp8
