#pragma once

/// Stages of shared memory that copies fill and groups of four warps use up, in turn.

#include <cstdint>

#include "kernels/cuda/products/async_copy.cuh"

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Addresses in shared memory: the stages, and for each the barrier that tells when it is full and
/// the one that tells when it has been used.
struct Ring {
  uint32_t memory, full, empty;
  int stages;
};

/// A place in the ring, and how often it has come round.
struct Place {
  int slot = 0;
  uint32_t round = 0;

  __device__ void advance(int count, int stages) {
    slot += count;
    if (slot < stages) return;
    slot -= stages;
    round ^= 1;
  }
};

/// The first `threads` of a block, a multiple of 32, wait for each other.
__device__ inline void sync_groups(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

#endif

}  // namespace slime::kernels::cuda
