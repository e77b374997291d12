#pragma once

/// Loads and exchanges that products of many rows of codes share (compute capability 9.0).

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

#endif

}  // namespace slime::kernels::cuda::fp8
