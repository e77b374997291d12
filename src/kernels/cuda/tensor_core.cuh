#pragma once

/// One tensor-core instruction, its operand layout, and its operands from shared memory.
///
/// c += a b with a [16, 16], b [16, 8], c [16, 8] spread over a warp. With g = lane / 4 and
/// t = lane % 4, a lane holds
///   a0 (g, 2t..2t+1)  a1 (g + 8, 2t..2t+1)  a2 (g, 2t+8..2t+9)  a3 (g + 8, 2t+8..2t+9)
///   b0 (2t..2t+1, g)  b1 (2t+8..2t+9, g)
///   c0, c1 (g, 2t..2t+1)  c2, c3 (g + 8, 2t..2t+1)
/// (PTX ISA, section "Matrix Fragments for mma.m16n8k16"). Which number is called which k is free
/// as long as a and b agree: that is how operands come straight from 16-byte loads.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace slime::kernels::cuda {

template <typename T>
__device__ inline void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

/// Four or two matrices of eight lines of 16 bytes in shared memory; lane l names line l % 8 of matrix
/// l / 8.
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t line_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(line_of_lane)
               : "memory");
}
__device__ inline void load_matrices(uint32_t (&to)[2], uint32_t line_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(line_of_lane)
               : "memory");
}
/// Four, each transposed.
__device__ inline void load_turned(uint32_t (&to)[4], uint32_t line_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(line_of_lane)
               : "memory");
}

/// 16 bytes that are read once: past the L1 cache, and not while they may still be written.
__device__ inline uint4 load_once(const void* pointer) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(pointer));
  return x;
}

/// Two floats as two 16-bit numbers, the first in the low half.
template <typename T>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}

/// The other way.
template <typename T>
__device__ inline float2 unpack(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&two));
  } else {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000U));
  }
}

/// The low halves of two registers, and the high ones.
__device__ inline uint32_t low_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ inline uint32_t high_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

}  // namespace slime::kernels::cuda
