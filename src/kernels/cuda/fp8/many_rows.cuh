#pragma once

/// Loads, exchanges and scaled sums that products of many rows of codes share (compute capability 9.0).

#include <cstdint>

#include "kernels/cuda/vendor/vendor.cuh"

namespace slime::kernels::cuda::fp8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Loads that stay where they are: kept in registers over all slabs they would take those of the sums.
__device__ inline float load_here(const float* from) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
}
__device__ inline int64_t load_here(const int64_t* from) {
  int64_t x;
  asm volatile("ld.global.nc.s64 %0, [%1];" : "=l"(x) : "l"(from));
  return x;
}

/// Four lanes have two numbers each of four groups of eight: afterwards each has a group.
__device__ inline uint4 turned(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const int lane = threadIdx.x % 4;
  const auto exchange = [](uint32_t& own, uint32_t& other, bool is_odd, int with) {
    const uint32_t sent = is_odd ? own : other;
    const uint32_t got = __shfl_xor_sync(0xffffffffU, sent, with);
    (is_odd ? own : other) = got;
  };
  exchange(a, b, lane & 1, 1);
  exchange(c, d, lane & 1, 1);
  exchange(a, c, lane & 2, 2);
  exchange(b, d, lane & 2, 2);
  return make_uint4(a, b, c, d);
}

/// Adds a slab's products of a thread's two rows, times a factor of each: the result of wgmma_block(), four numbers of
/// eight outputs.
__device__ inline void add_slab(float (&sum)[64], const float (&dot)[64], float low, float high) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    sum[4 * j] += dot[4 * j] * low;
    sum[4 * j + 1] += dot[4 * j + 1] * low;
    sum[4 * j + 2] += dot[4 * j + 2] * high;
    sum[4 * j + 3] += dot[4 * j + 3] * high;
  }
}

/// Factors of weights at a slab: row factor_row_O[output] of `factors`, `slabs` apart.
struct SlabFactors {
  const int64_t* factor_row_O;
  const float* factors;
  int slabs;
};

/// The same where a tile has outputs of several rows of factors, as parts that do not end with blocks have. `first`: of
/// the tile; `outputs`: of the matrix.
__device__ inline void add_slab(float (&sum)[64], const float (&dot)[64], float low, float high,
                                const SlabFactors& of, int first, int outputs) {
  const int quarter = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int output = min(first + 8 * j + 2 * quarter + i, outputs - 1);
      const int64_t row = load_here(of.factor_row_O + output);
      const float of_w = load_here(of.factors + row * of.slabs);
      sum[4 * j + i] += dot[4 * j + i] * (low * of_w);
      sum[4 * j + 2 + i] += dot[4 * j + 2 + i] * (high * of_w);
    }
  }
}

#endif

}  // namespace slime::kernels::cuda::fp8
