#pragma once

/// A flag by which a product reads x before h is there (LowRankAddition::ready): set by the kernel that makes h, which is
/// launched between the kernel that writes x and the product.
///
/// The product looks before it waits for any kernel. So its thread blocks of the pass before must have seen the flag and
/// taken it back, which is so because a pass has a product once and begins with a copy of its inputs: behind a copy
/// nothing starts early.

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// By one thread of the kernel that makes h, when x is complete.
__device__ inline void announce_x(unsigned* ready) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(ready) : "memory");
}

/// By one thread of each thread block of the product. All thread blocks of the other kernel are running when the first one
/// here begins, since they have let it start. The last one to see the flag takes it back.
__device__ inline void wait_for_announced_x(unsigned* ready) {
  unsigned is_ready = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_ready) : "l"(ready) : "memory");
  } while (is_ready == 0);
  const unsigned have_seen = atomicAdd(ready + 1, 1U);
  if (have_seen + 1 < gridDim.x * gridDim.y) return;
  ready[0] = 0;  // nobody looks any more
  ready[1] = 0;
}

#endif

}  // namespace slime::kernels::cuda
