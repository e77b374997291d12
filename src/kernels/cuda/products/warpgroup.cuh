#pragma once

/// Warpgroup matrix multiply-accumulate: four warps together, both operands in shared memory
/// (compute capability 9.0; PTX ISA, section "wgmma").
///
/// Operands are K-major unless they say otherwise, with the 128-byte swizzle, as tile_map() stores
/// them (kernels/cuda/products/tile_map.h), and start at multiples of 1024 bytes. c [64, N] += a [64,
/// 16] b [N, 16]^T: with warp w of the four and lane = 4 g + q, a thread holds in c[4 j ...] of
/// rows 16 w + g and 16 w + g + 8 the columns 8 j + 2 q and 8 j + 2 q + 1.

#include <cuda_bf16.h>

#include <cstdint>

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The matrix descriptor of an operand: address, stride between groups of eight lines (1024 bytes),
/// 128-byte swizzle. K-major: `address` is that of the first of 16 inputs; the next 16 are 32 bytes
/// further. MN-major: slabs of 64 columns, `slab_bytes` apart, each of lines of 128 bytes; what is
/// summed over goes from line to line, and the next 16 lines are 2048 bytes further.
__device__ inline uint64_t matrix_descriptor(uint32_t address, int slab_bytes = 16) {
  constexpr uint64_t kEightLines = 1024 >> 4, kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(slab_bytes >> 4) << 16 |
         kEightLines << 32 | kSwizzle128 << 62;
}

/// Before the first wgmma() of a group.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// After the last one.
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `kOpen` committed groups are in flight.
template <int kOpen>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

/// After wgmma_wait_group(): keeps the compiler from reading accumulators earlier, while a wgmma in
/// flight still changes them.
template <int kCount>
__device__ inline void settle(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

/// Reallocates registers between warpgroups (setmaxnreg): from now on so many for each thread of
/// this one, a multiple of eight.
template <int kRegisters>
__device__ inline void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// The registers %0 to %7, %0 to %15 and so on, and eight of the accumulators from c[i] on.
#define SLIME_REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SLIME_REGISTERS_16 SLIME_REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SLIME_REGISTERS_24 SLIME_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define SLIME_REGISTERS_32 SLIME_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define SLIME_REGISTERS_40 SLIME_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SLIME_REGISTERS_48 SLIME_REGISTERS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SLIME_REGISTERS_56 SLIME_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define SLIME_REGISTERS_64 SLIME_REGISTERS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define SLIME_REGISTERS_72 SLIME_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define SLIME_REGISTERS_76 SLIME_REGISTERS_72 ", %72, %73, %74, %75"
#define SLIME_REGISTERS_80 SLIME_REGISTERS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define SLIME_REGISTERS_88 SLIME_REGISTERS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define SLIME_REGISTERS_96 SLIME_REGISTERS_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define SLIME_REGISTERS_128                                                  \
  SLIME_REGISTERS_96                                                         \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "   \
  "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define SLIME_SUMS(c, i)                                                                      \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define SLIME_SUMS_16(c, i) SLIME_SUMS(c, i), SLIME_SUMS(c, (i) + 8)
#define SLIME_SUMS_32(c, i) SLIME_SUMS_16(c, i), SLIME_SUMS_16(c, (i) + 16)
#define SLIME_SUMS_64(c, i) SLIME_SUMS_32(c, i), SLIME_SUMS_32(c, (i) + 32)
/// wgmma(c, a, b) with `count` accumulators a thread; the operands' registers are numbered behind
/// them.
#define SLIME_MULTIPLY_ADD(columns, count, registers, a_number, b_number, ...)                \
  __device__ inline void wgmma(float(&c)[count], uint64_t a, uint64_t b) {                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" registers \
                 "}, %" #a_number ", %" #b_number ", 1, 1, 1, 0, 0;"                          \
                 : __VA_ARGS__                                                                \
                 : "l"(a), "l"(b));                                                           \
  }

SLIME_MULTIPLY_ADD(8, 4, "%0, %1, %2, %3", 4, 5, "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]))
SLIME_MULTIPLY_ADD(16, 8, SLIME_REGISTERS_8, 8, 9, SLIME_SUMS(c, 0))
SLIME_MULTIPLY_ADD(32, 16, SLIME_REGISTERS_16, 16, 17, SLIME_SUMS_16(c, 0))
SLIME_MULTIPLY_ADD(48, 24, SLIME_REGISTERS_24, 24, 25, SLIME_SUMS_16(c, 0), SLIME_SUMS(c, 16))
SLIME_MULTIPLY_ADD(64, 32, SLIME_REGISTERS_32, 32, 33, SLIME_SUMS_32(c, 0))
SLIME_MULTIPLY_ADD(80, 40, SLIME_REGISTERS_40, 40, 41, SLIME_SUMS_32(c, 0), SLIME_SUMS(c, 32))
SLIME_MULTIPLY_ADD(96, 48, SLIME_REGISTERS_48, 48, 49, SLIME_SUMS_32(c, 0), SLIME_SUMS_16(c, 32))
SLIME_MULTIPLY_ADD(112, 56, SLIME_REGISTERS_56, 56, 57, SLIME_SUMS_32(c, 0), SLIME_SUMS_16(c, 32),
                   SLIME_SUMS(c, 48))
SLIME_MULTIPLY_ADD(128, 64, SLIME_REGISTERS_64, 64, 65, SLIME_SUMS_64(c, 0))
SLIME_MULTIPLY_ADD(152, 76, SLIME_REGISTERS_76, 76, 77, SLIME_SUMS_64(c, 0), SLIME_SUMS(c, 64),
                   "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]))
SLIME_MULTIPLY_ADD(192, 96, SLIME_REGISTERS_96, 96, 97, SLIME_SUMS_64(c, 0), SLIME_SUMS_32(c, 64))

/// As wgmma() with 128 columns; operands that turn are MN-major.
template <bool kTurnsA, bool kTurnsB>
__device__ inline void wgmma_turned(float (&c)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" SLIME_REGISTERS_64
               "}, %64, %65, 1, 1, 1, %66, %67;"
               : SLIME_SUMS_64(c, 0)
               : "l"(a), "l"(b), "n"(kTurnsA ? 1 : 0), "n"(kTurnsB ? 1 : 0));
}

/// c [64, 256] += a [64, 16] b [256, 16]^T; without `adds` c is overwritten.
__device__ inline void wgmma_256(float (&c)[128], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" SLIME_REGISTERS_128
      "}, %128, %129, adds, 1, 1, 0, 0;\n"
      "}\n"
      : SLIME_SUMS_64(c, 0), SLIME_SUMS_64(c, 64)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

#undef SLIME_MULTIPLY_ADD
#undef SLIME_SUMS_64
#undef SLIME_SUMS_32
#undef SLIME_SUMS_16
#undef SLIME_SUMS
#undef SLIME_REGISTERS_128
#undef SLIME_REGISTERS_96
#undef SLIME_REGISTERS_88
#undef SLIME_REGISTERS_80
#undef SLIME_REGISTERS_76
#undef SLIME_REGISTERS_72
#undef SLIME_REGISTERS_64
#undef SLIME_REGISTERS_56
#undef SLIME_REGISTERS_48
#undef SLIME_REGISTERS_40
#undef SLIME_REGISTERS_32
#undef SLIME_REGISTERS_24
#undef SLIME_REGISTERS_16
#undef SLIME_REGISTERS_8

#endif

}  // namespace slime::kernels::cuda
