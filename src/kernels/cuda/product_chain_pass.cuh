#pragma once

/// A pass over all inputs of a product in a chain (kernels/cuda/product_chain.h), by the warps that
/// multiply.

#include "kernels/cuda/product_chain_ring.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::chain {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ inline void sync_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}

/// Of a 16-byte piece: the copy engine has put it at its number xor the line's.
__device__ inline uint32_t address_of(uint32_t begin, uint32_t line, uint32_t piece) {
  return begin + 128 * line + ((piece ^ (line & 7)) << 4);
}

/// A step's operands: 16 inputs of up to 16 kTiles outputs and 8 kRowTiles rows.
template <int kTiles, int kRowTiles>
struct Operands {
  uint32_t w[kTiles][4], x[kRowTiles][2];

  __device__ void load_x(int pair, uint32_t address) {
    if constexpr (kRowTiles == 1) {
      load_matrices(x[0], address);
    } else {
      uint32_t both[4];
      load_matrices(both, address);
      x[2 * pair][0] = both[0];
      x[2 * pair][1] = both[1];
      x[2 * pair + 1][0] = both[2];
      x[2 * pair + 1][1] = both[3];
    }
  }

  template <typename T>
  __device__ void multiply_into(float (&sum)[kTiles][kRowTiles][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n)
        multiply<T>(sum[tile][n], w[tile][0], w[tile][1], w[tile][2], w[tile][3], x[n][0], x[n][1]);
    }
  }
};

/// What a pass over all inputs needs to know, in registers: the compiler would fetch it from the
/// arguments again after every wait.
struct Pass {
  int box, most_outputs, slabs, chunks, rows, stages;
  uint32_t x_begin, slot_bytes;
};

/// Multiplies, and leaves each warp's sums of eight rows at a time in `partial`: then `finish(n)`
/// is called for rows 8 n and following.
template <typename T, int kTiles, int kRowTiles, int kPitch, typename Finish>
__device__ void multiply_pass(const Pass& pass, const Ring& ring, Place& place,
                              float (&partial)[kWarps][8][kPitch], const Finish& finish) {
  constexpr int kPairs = (kRowTiles + 1) / 2;     // of eight rows of x
  constexpr int kGroup = kRowTiles == 1 ? 2 : 1;  // steps whose operands are loaded together
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // A warp takes every eighth step of 16 inputs: the same piece of every second slab. Its lines of
  // the first one follow; rows that are not there repeat the last one, their results are not used.
  const uint32_t first_slab = warp / 4, weight_piece = warp % 4 * 2 + lane / 16;
  const uint32_t x_piece = warp % 4 * 2 + lane / 8 % 2;
  uint32_t weight_lines[kTiles], x_lines[kPairs];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int row = min(16 * tile + lane % 16, pass.most_outputs - 1);
    weight_lines[tile] =
        first_slab * pass.box + (row < pass.box ? row : row - pass.box + pass.slabs * pass.box);
  }
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair)
    x_lines[pair] =
        first_slab * pass.rows + min(16 * pair + lane / 16 * 8 + lane % 8, pass.rows - 1);

  float sum[kTiles][kRowTiles][4] = {};
  for (int chunk = 0; chunk < pass.chunks; ++chunk) {
    wait(ring.full + 8 * place.slot, place.round);
    const uint32_t stage = ring.memory + place.slot * pass.slot_bytes;
#pragma unroll 1
    for (int slab = 0; slab < pass.slabs; slab += 2 * kGroup) {
      Operands<kTiles, kRowTiles> now[kGroup];
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const uint32_t line = (slab + 2 * g) * pass.rows, weight_line = (slab + 2 * g) * pass.box;
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
          now[g].load_x(pair, address_of(stage + pass.x_begin, x_lines[pair] + line, x_piece));
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          load_matrices(now[g].w[tile],
                        address_of(stage, weight_lines[tile] + weight_line, weight_piece));
      }
#pragma unroll
      for (int g = 0; g < kGroup; ++g) now[g].template multiply_into<T>(sum);
    }
    __syncwarp();
    if (lane == 0) arrive(ring.empty + 8 * place.slot);
    place.advance(pass.stages);
  }

  const int group = lane / 4, quarter = lane % 4;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    if (8 * n >= pass.rows) break;
    sync_consumers();
    float(*mine)[kPitch] = partial[warp];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      mine[2 * quarter][16 * tile + group] = sum[tile][n][0];
      mine[2 * quarter + 1][16 * tile + group] = sum[tile][n][1];
      mine[2 * quarter][16 * tile + group + 8] = sum[tile][n][2];
      mine[2 * quarter + 1][16 * tile + group + 8] = sum[tile][n][3];
    }
    sync_consumers();
    if (8 * n + warp < pass.rows) finish(n);
  }
}

#endif

}  // namespace slime::kernels::cuda::chain
