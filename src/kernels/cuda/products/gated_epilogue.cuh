#pragma once

/// SwiGLU epilogue for products of many rows (compute capability 9.0).

#include <cstdint>

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

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
