#pragma once

/// AMD's words for the names of vendor.cuh, for gfx942 and gfx950: waves of 64 lanes. clang compiles them as HIP; other
/// compilers, of host sources, see launches alone.

#include <hip/hip_runtime.h>

#include <bit>
#include <cstdint>

#include "kernels/cuda/vendor/amd_launch.cuh"

#ifdef __HIP__

#define SLIME_ANYWHERE __host__ __device__
#include "kernels/cuda/vendor/fp8_codes.h"

// The second bound is of thread blocks in CUDA and of waves in HIP; here it is left out.
#undef __launch_bounds__
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define __grid_constant__

#define SLIME_DEVICE_CODE 1
#define SLIME_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define SLIME_HAS_PIECES 1
#define SLIME_HAS_DECODE 1

namespace slime::kernels::cuda {

using BFloat16 = __bf16;
using Float16 = _Float16;
using SharedAddress = uintptr_t;

__device__ inline unsigned lane_of_wave() {
  return __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0U));
}
template <typename T>
__device__ inline T from_wave_lane(T x, unsigned lane) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  struct Words {
    int word[kWords];
  } words{};
  __builtin_memcpy(&words, &x, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    words.word[i] = __builtin_amdgcn_ds_bpermute(static_cast<int>(4 * lane), words.word[i]);
  __builtin_memcpy(&x, &words, sizeof(T));
  return x;
}
__device__ inline uint64_t wave_ballot(bool is_true) {
  return __builtin_amdgcn_ballot_w64(is_true);
}
__device__ inline unsigned exchange_distance(int distance) {
  return static_cast<unsigned>(distance);
}
__device__ inline unsigned exchange_lane(int lane) { return static_cast<unsigned>(lane) & 31U; }
/// Lanes of a wave run in step; what is to be kept in order is the memory.
__device__ inline void sync_lanes() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

#pragma clang fp contract(off)
__device__ inline float sum_rn(float a, float b) { return a + b; }
__device__ inline double sum_rn(double a, double b) { return a + b; }
__device__ inline float difference_rn(float a, float b) { return a - b; }
__device__ inline float product_rn(float a, float b) { return a * b; }
__device__ inline double product_rn(double a, double b) { return a * b; }
__device__ inline float quotient_rn(float a, float b) { return a / b; }
__device__ inline float reciprocal_rn(float x) { return 1.0F / x; }
#pragma clang fp contract(fast)
__device__ inline float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ inline float to_float_rn(double x) { return static_cast<float>(x); }
__device__ inline float exp2_flushed(float x) { return __builtin_amdgcn_exp2f(x); }
__device__ inline float reciprocal_flushed(float x) { return __builtin_amdgcn_rcpf(x); }
__device__ inline float fast_exp(float x) { return exp2_flushed(x * 1.44269504F); }
__device__ inline float fast_divide(float a, float b) { return a * reciprocal_flushed(b); }

}  // namespace slime::kernels::cuda

#include "kernels/cuda/vendor/half_waves.cuh"
#include "kernels/cuda/vendor/tile_layout.cuh"

namespace slime::kernels::cuda {

/// One instruction. All lanes of the wave are there: it looks at none's absence.
template <typename T>
__device__ inline void multiply_tiles(TileLayout<64>, float (&c)[4], const uint32_t (&a)[2],
                                      const uint32_t (&b)[2]) {
#ifdef __HIP_DEVICE_COMPILE__
  using Sums = float __attribute__((ext_vector_type(4)));
  struct Words {
    uint32_t word[2];
  };
  const Words of_a{a[0], a[1]}, of_b{b[0], b[1]};
  Sums sums = {c[0], c[1], c[2], c[3]};
  if constexpr (std::is_same_v<T, Float16>) {
    using Four = _Float16 __attribute__((ext_vector_type(4)));
    sums = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Four, of_a),
                                                 __builtin_bit_cast(Four, of_b), sums, 0, 0, 0);
  } else {
    using Four = short __attribute__((ext_vector_type(4)));
    sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Four, of_a),
                                                     __builtin_bit_cast(Four, of_b), sums, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = sums[i];
#endif
}

template <typename Body>
void with_tiles(Stream /*stream*/, const Body& body) {
  body(TileLayout<64>{});
}

}  // namespace slime::kernels::cuda

#endif
