#pragma once

/// Products by four warps together, operands in shared memory (compute capability 9.0; PTX ISA,
/// section "wgmma").
///
/// An operand's rows lie along its 64 inputs as the copy engine leaves them (kernels/cuda/
/// tile_map.h), from a multiple of 1024 bytes on. c [64, N] += a [64, 16] b [N, 16]^T: with warp w
/// of the four and lane = 4 g + q, a thread holds in c[4 j ...] of rows 16 w + g and 16 w + g + 8
/// the columns 8 j + 2 q and 8 j + 2 q + 1.

#include <cuda_bf16.h>

#include <cstdint>

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// How an operand is described: address, distance between groups of eight rows, swizzle of 128
/// bytes. `address` is that of the first of 16 inputs: 32 bytes further for the next.
__device__ inline uint64_t operand_at(uint32_t address) {
  constexpr uint64_t kEightRows = 1024 >> 4, kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

/// Before the first product of a group of products.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// After the last one.
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most `kOpen` groups are on their way.
template <int kOpen>
__device__ inline void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

__device__ inline void multiply_add(float (&c)[4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "l"(a), "l"(b));
}

__device__ inline void multiply_add(float (&c)[8], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7])
      : "l"(a), "l"(b));
}

/// Sixteen of the sums, from c[i] on.
#define SLIME_SUMS(c, i)                                                                      \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7]), "+f"(c[i + 8]), "+f"(c[i + 9]), "+f"(c[i + 10]),        \
      "+f"(c[i + 11]), "+f"(c[i + 12]), "+f"(c[i + 13]), "+f"(c[i + 14]), "+f"(c[i + 15])

__device__ inline void multiply_add(float (&c)[16], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, 1, 1, 1, 0, 0;"
      : SLIME_SUMS(c, 0)
      : "l"(a), "l"(b));
}

__device__ inline void multiply_add(float (&c)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : SLIME_SUMS(c, 0), SLIME_SUMS(c, 16)
      : "l"(a), "l"(b));
}

#undef SLIME_SUMS

#endif

}  // namespace slime::kernels::cuda
