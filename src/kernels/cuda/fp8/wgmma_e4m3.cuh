#pragma once

/// Warpgroup products of e4m3 codes, both operands K-major in shared memory with the 128-byte swizzle
/// (kernels/cuda/products/warpgroup.cuh has the rest). c [64, N] = or += a [64, 32] b [N, 32]^T.
///
/// The tensor cores keep some 13 bits of a sum while they add: 128 inputs go into one set of accumulators,
/// which is then added up in float32 with the blocks' factors.

#include "kernels/cuda/products/warpgroup.cuh"

namespace slime::kernels::cuda::fp8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SLIME_C8(c, i)                                                                        \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define SLIME_C16(c, i) SLIME_C8(c, i), SLIME_C8(c, (i) + 8)
#define SLIME_C32(c, i) SLIME_C16(c, i), SLIME_C16(c, (i) + 16)
#define SLIME_C64(c, i) SLIME_C32(c, i), SLIME_C32(c, (i) + 32)
#define SLIME_N8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SLIME_N16 SLIME_N8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SLIME_N32 \
  SLIME_N16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SLIME_N64                                                                      \
  SLIME_N32                                                                            \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/// wgmma(c, a, b, adds): without `adds` c is overwritten.
#define SLIME_E4M3(columns, count, registers, a_number, b_number, adds_number, ...)   \
  __device__ inline void wgmma(float(&c)[count], uint64_t a, uint64_t b, bool adds) { \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #adds_number              \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns                   \
                 "k32.f32.e4m3.e4m3 {" registers "}, %" #a_number ", %" #b_number     \
                 ", adds, 1, 1;\n}\n"                                                 \
                 : __VA_ARGS__                                                        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(adds)));                      \
  }

SLIME_E4M3(8, 4, "%0, %1, %2, %3", 4, 5, 6, "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]))
SLIME_E4M3(16, 8, SLIME_N8, 8, 9, 10, SLIME_C8(c, 0))
SLIME_E4M3(32, 16, SLIME_N16, 16, 17, 18, SLIME_C16(c, 0))
SLIME_E4M3(64, 32, SLIME_N32, 32, 33, 34, SLIME_C32(c, 0))
SLIME_E4M3(128, 64, SLIME_N64, 64, 65, 66, SLIME_C64(c, 0))

#undef SLIME_E4M3
#undef SLIME_N64
#undef SLIME_N32
#undef SLIME_N16
#undef SLIME_N8
#undef SLIME_C64
#undef SLIME_C32
#undef SLIME_C16
#undef SLIME_C8

/// 128 inputs: operands whose 128-byte lines begin at these addresses, multiples of 1024.
template <int kCount>
__device__ inline void wgmma_block(float (&c)[kCount], uint32_t a, uint32_t b) {
  const uint64_t left = matrix_descriptor(a), right = matrix_descriptor(b);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma(c, left + 2 * k, right + 2 * k, k > 0);
}

#endif

}  // namespace slime::kernels::cuda::fp8
