#pragma once

/// Copies into shared memory that products of codes are made of (kernels/cuda/products/async_copy.cuh has
/// the barriers).

#include "kernels/cuda/products/async_copy.cuh"

namespace slime::kernels::cuda::fp8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A box of code_map().
__device__ inline void copy_codes(uint32_t to, const CUtensorMap& map, int input, int row,
                                  uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(input), "r"(row), "r"(0), "r"(barrier)
      : "memory");
}

/// The same, read once.
__device__ inline void copy_codes_once(uint32_t to, const CUtensorMap& map, int input, int row,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(input), "r"(row), "r"(0), "r"(barrier), "l"(evict_first_policy())
      : "memory");
}

/// Contiguous bytes, a multiple of 16.
__device__ inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

#endif

}  // namespace slime::kernels::cuda::fp8
