#pragma once

/// Tensor-core instructions, their operands from shared memory, and asynchronous copies by threads, as
/// NVIDIA's GPUs have them: PTX ISA, sections "mma", "ldmatrix" and "cp.async"; compute capability 8.0.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vendor/tile_layout.cuh"

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

template <typename T>
__device__ inline void multiply_tiles(TileLayout<32>, float (&c)[8], const uint32_t (&a)[4],
                                      const uint32_t (&b)[4]) {
  float left[4] = {c[0], c[1], c[2], c[3]}, right[4] = {c[4], c[5], c[6], c[7]};
  multiply<T>(left, a[0], a[1], a[2], a[3], b[0], b[1]);
  multiply<T>(right, a[0], a[1], a[2], a[3], b[2], b[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = left[i], c[4 + i] = right[i];
}

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
__device__ inline void load_turned(uint32_t (&to)[4], uint32_t line_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(line_of_lane)
               : "memory");
}

template <typename Body>
void with_tiles(Stream /*stream*/, const Body& body) {
  body(TileLayout<32>{});
}

#if SLIME_HAS_PIECES

/// A copy of 16 bytes by the thread itself, of which `bytes` are read and the others become zero.
__device__ inline void copy_piece(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
/// Waits for all that this thread has asked for.
__device__ inline void wait_for_pieces() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// What this thread has asked for since the last call is a group, and waiting for all groups but the
/// latest ones.
__device__ inline void commit_pieces() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLatest>
__device__ inline void wait_for_pieces_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLatest) : "memory");
}

#endif

}  // namespace slime::kernels::cuda
