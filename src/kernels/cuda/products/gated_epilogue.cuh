#pragma once

/// SwiGLU epilogue for products of many rows (compute capability 9.0).

#include <cstdint>

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// silu() of kernels/cuda/launch.cuh with a third of the instructions: nothing is done for numbers
/// below 1e-38.
__device__ inline float quick_silu(float x) {
  constexpr float kMinusLog2E = -1.44269504F;
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kMinusLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0F + power));
  return x * inverse;
}

/// Four matrices of eight lines of 16 bytes to shared memory, each as wgmma leaves it: a lane has a
/// word of line l / 4. Lane l names where line l % 8 of matrix l / 8 goes.
__device__ inline void store_matrices(uint32_t line_of_lane, const uint32_t (&from)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(line_of_lane),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}

#endif

}  // namespace slime::kernels::cuda
