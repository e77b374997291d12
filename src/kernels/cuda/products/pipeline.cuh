#pragma once

/// A software pipeline through shared memory: a producer thread fills its stages by asynchronous
/// copies, consumer warps read and release them, first in, first out. Each stage has two mbarriers.
/// Compute capability 9.0.

#include <cstdint>

#include "kernels/cuda/products/async_copy.cuh"

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Shared-memory addresses. `memory`: the first stage, a multiple of 1024 bytes. `full` and
/// `empty`: arrays of `stages` mbarriers, 8 bytes each; a phase of the first completes when the
/// stage's copies have arrived, one of the second when all consumers have released the stage.
struct Pipeline {
  uint32_t memory, full, empty;
  int stages;
};

/// Where a producer or consumer stands: the index of its stage and the parity of the mbarrier phase
/// it waits for, which flips at each wrap-around.
struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance(int count, int stages) {
    stage += count;
    if (stage < stages) return;
    stage -= stages;
    phase ^= 1;
  }
};

/// Named barrier 1 of the first `threads` threads of a thread block, a multiple of 32: the
/// consumers, without the producer warps.
__device__ inline void sync_consumers(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

#endif

}  // namespace slime::kernels::cuda
