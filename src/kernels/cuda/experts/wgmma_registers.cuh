#pragma once

/// Warpgroup products of bfloat16 whose first operand is in registers (kernels/cuda/products/warpgroup.cuh has the
/// rest). c [64, N] = or += a [64, 16] b [N, 16]^T.
///
/// With warp w of the four and lane = 4 g + q, a thread has of rows 16 w + g and 16 w + g + 8 of a
///   a[0] (g, 2q..2q+1)   a[1] (g + 8, 2q..2q+1)   a[2] (g, 2q+8..2q+9)   a[3] (g + 8, 2q+8..2q+9)
/// (PTX ISA, section "Register Fragments for wgmma.mma_async.m64nNk16"). Registers of a must stay what they are until the
/// group has been waited for.

#include "kernels/cuda/products/warpgroup.cuh"

namespace slime::kernels::cuda::experts {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SLIME_C8(c, i)                                                                        \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define SLIME_C16(c, i) SLIME_C8(c, i), SLIME_C8(c, (i) + 8)
#define SLIME_N8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SLIME_N16 SLIME_N8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SLIME_N32 \
  SLIME_N16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
/// wgmma_of_registers(c, a, b, adds): without `adds` c is overwritten. The operands' registers are numbered behind c.
#define SLIME_OF_REGISTERS(columns, count, sums, a_registers, b_number, adds_number, ...)        \
  __device__ inline void wgmma_of_registers(float(&c)[count], const uint32_t(&a)[4], uint64_t b, \
                                            bool adds) {                                         \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #adds_number                         \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" sums   \
                 "}, {" a_registers "}, %" #b_number ", adds, 1, 1, 0;\n}\n"                     \
                 : __VA_ARGS__                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                           \
                   "r"(static_cast<int>(adds)));                                                 \
  }

SLIME_OF_REGISTERS(8, 4, "%0, %1, %2, %3", "%4, %5, %6, %7", 8, 9, "+f"(c[0]), "+f"(c[1]),
                   "+f"(c[2]), "+f"(c[3]))
SLIME_OF_REGISTERS(16, 8, SLIME_N8, "%8, %9, %10, %11", 12, 13, SLIME_C8(c, 0))
SLIME_OF_REGISTERS(32, 16, SLIME_N16, "%16, %17, %18, %19", 20, 21, SLIME_C16(c, 0))
SLIME_OF_REGISTERS(64, 32, SLIME_N32, "%32, %33, %34, %35", 36, 37, SLIME_C16(c, 0),
                   SLIME_C16(c, 16))

#undef SLIME_OF_REGISTERS
#undef SLIME_N32
#undef SLIME_N16
#undef SLIME_N8
#undef SLIME_C16
#undef SLIME_C8

#endif

}  // namespace slime::kernels::cuda::experts
