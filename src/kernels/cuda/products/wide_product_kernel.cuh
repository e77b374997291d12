#pragma once

/// The kernel of kernels/cuda/products/wide_product.h.
///
/// A block has up to 192 outputs (weight rows), all rows of x, and a part of the inputs. One thread
/// asks for x and weights, 64 inputs at a time, through a ring in shared memory; two groups of four
/// warps each multiply every other 64 rows with all of the block's outputs. Behind the last row
/// they multiply what happens to lie there, and nobody looks at the result.
///
/// A block goes on with other outputs until all are done; while results are written, what comes
/// next is on its way.

#include <cuda.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/ring.cuh"
#include "kernels/cuda/products/warpgroup.cuh"
#include "kernels/cuda/products/wide_product_cut.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::wide {

struct Arguments {
  CUtensorMap weights, x;
  const __nv_bfloat16* bias_O = nullptr;
  void* y = nullptr;
  int rows = 0, units = 0;  // units: outputs, or pairs
  int tiles = 0, chunks = 0, parts = 1, stages = 0;
};

inline constexpr int kMultipliers = 128 * kGroups, kThreads = kMultipliers + 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// By one thread.
template <int kOutputs, int kRows, bool kPairs>
__device__ void ask_for_tiles(const Arguments& a, const Ring& ring, int begin, int end) {
  constexpr SharedLayout kLayout(kRows, kOutputs, kMaxStages);
  const auto ask_for_weights = [&](int tile, int chunk, int slot) {
    const uint32_t barrier = ring.full + 8 * slot;
    const uint32_t to = ring.memory + slot * kLayout.slot_bytes + kLayout.x_bytes;
    arrive_expecting(barrier, 128 * (a.rows + kOutputs));
    if constexpr (kPairs) {
      copy_pairs_once(to, a.weights, tile * (kOutputs / 8), chunk, barrier);
    } else {
      copy_tile_once(to, a.weights, tile * kOutputs, chunk, barrier);
    }
  };
  const auto ask_for_x = [&](int chunk, int slot) {
    copy_tile(ring.memory + slot * kLayout.slot_bytes, a.x, 0, chunk, ring.full + 8 * slot);
  };
  // What all stages hold first: weights at once, x when the kernels before this one are done.
  const int ahead = min(end - begin, ring.stages);
  for (int i = 0; i < ahead; ++i) ask_for_weights(blockIdx.x, begin + i, i);
  prefetch_map(a.x);
  wait_for_inputs();
  let_copies_see();
  for (int i = 0; i < ahead; ++i) ask_for_x(begin + i, i);
  Place place;
  place.advance(ahead, ring.stages);
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const bool is_first = tile == blockIdx.x;
    for (int chunk = is_first ? begin + ahead : begin; chunk < end; ++chunk) {
      wait(ring.empty + 8 * place.slot, place.round ^ 1);
      ask_for_weights(tile, chunk, place.slot);
      ask_for_x(chunk, place.slot);
      place.advance(1, ring.stages);
    }
  }
}

/// The sums of the group's rows: those of tile t begin at 64 (group + kGroups t). kUsed: tiles that
/// have rows. Returns the last stage's slot, which the caller gives back.
template <int kOutputs, int kRows, int kUsed, int kTiles>
__device__ int multiply_tiles(const Ring& ring, Place& place, int count, int group,
                              float (&sum)[kTiles][kOutputs / 2]) {
  constexpr SharedLayout kLayout(kRows, kOutputs, kMaxStages);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (float& x : sum[t]) x = 0;
  }
  int last = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {  // unrolled, its rest would move sums that are on their way
    wait(ring.full + 8 * place.slot, place.round);
    const uint32_t stage = ring.memory + place.slot * kLayout.slot_bytes;
    const uint64_t x = operand_at(stage + 128 * kTileRows * group);
    const uint64_t weights = operand_at(stage + kLayout.x_bytes);
    constexpr int kNextTile = 128 * kTileRows * kGroups >> 4, kNextInputs = 32 >> 4;
    begin_products();
#pragma unroll
    for (int k = 0; k < kSlabInputs / 16; ++k) {
#pragma unroll
      for (int t = 0; t < kUsed; ++t)
        multiply_add(sum[t], x + kNextTile * t + kNextInputs * k, weights + kNextInputs * k);
    }
    end_products();
    await_products<1>();
    if (i > 0 && threadIdx.x % 128 == 0) arrive(ring.empty + 8 * last);
    last = place.slot;
    place.advance(1, ring.stages);
  }
  await_products<0>();
#pragma unroll
  for (int t = 0; t < kUsed; ++t) settle(sum[t]);
  return last;
}

__device__ inline int row_of_tile(int group, int t) { return kTileRows * (group + kGroups * t); }

/// Row of a thread's first sums of tile t; its others are eight rows further.
__device__ inline int row_of(int group, int t) {
  return row_of_tile(group, t) + 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4;
}

/// Sums as they are: a warp writes 32 bytes side by side for each of eight rows.
template <int kOutputs, int kTiles>
__device__ void write_parts(const Arguments& a, int tile, int group,
                            const float (&sum)[kTiles][kOutputs / 2]) {
  const int first = tile * kOutputs + 2 * (threadIdx.x % 4);
  auto* y = static_cast<float*>(a.y) + static_cast<int64_t>(blockIdx.y) * a.rows * a.units;
#pragma unroll
  for (int n = 0; n < 2 * kTiles; ++n) {
    const int row = row_of(group, n / 2) + 8 * (n % 2);
    if (row >= a.rows) continue;
    float* to = y + static_cast<int64_t>(row) * a.units + first;
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j) {
      const float* two = sum[n / 2] + 4 * j + 2 * (n % 2);
      if (first + 8 * j < a.units)
        *reinterpret_cast<float2*>(to + 8 * j) = make_float2(two[0], two[1]);
    }
  }
}

/// Of eight sums side by side four are gates and four the ups of the same pairs: a thread with
/// gates of rows r and r + 8 and the one with their ups exchange, so that the first has all of row
/// r and the other all of row r + 8. Results go by way of shared memory, as [row, pair].
template <int kOutputs, int kTiles>
__device__ void write_gated(const Arguments& a, __nv_bfloat16* results, int tile, int group,
                            const float (&sum)[kTiles][kOutputs / 2]) {
  constexpr int kPairs = kOutputs / 2, kPitch = SharedLayout::pitch(kPairs);
  const int quarter = threadIdx.x % 4, first = tile * kPairs;
  const bool has_gates = quarter < 2;
  sync_groups(kMultipliers);  // both have used the stage
#pragma unroll
  for (int j = 0; j < kOutputs / 8; ++j) {
    const int pair = 4 * j + 2 * (quarter % 2);
    float2 gate_bias = make_float2(0, 0), up_bias = make_float2(0, 0);
    if (a.bias_O != nullptr && first + pair < a.units) {
      const auto read = [&](int place) {
        return unpack<__nv_bfloat16>(*reinterpret_cast<const uint32_t*>(a.bias_O + place));
      };
      gate_bias = read(first + pair);
      up_bias = read(a.units + first + pair);
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const float* four = sum[t] + 4 * j;
      const float x = __shfl_xor_sync(0xffffffffU, has_gates ? four[2] : four[0], 2);
      const float y = __shfl_xor_sync(0xffffffffU, has_gates ? four[3] : four[1], 2);
      const float2 gate = has_gates ? make_float2(four[0], four[1]) : make_float2(x, y);
      const float2 up = has_gates ? make_float2(x, y) : make_float2(four[2], four[3]);
      const int row = row_of(group, t) + (has_gates ? 0 : 8);
      *reinterpret_cast<uint32_t*>(results + row * kPitch + pair) =
          pack<__nv_bfloat16>(silu(gate.x + gate_bias.x) * (up.x + up_bias.x),
                              silu(gate.y + gate_bias.y) * (up.y + up_bias.y));
    }
  }
  sync_groups(kMultipliers);
  constexpr int kPiece = 4;  // results that a thread writes
  const int pieces = min(kPairs, a.units - first) / kPiece;
  for (int n = threadIdx.x; n < a.rows * pieces; n += kMultipliers) {
    const int row = n / pieces, pair = n % pieces * kPiece;
    auto* y = static_cast<__nv_bfloat16*>(a.y) + static_cast<int64_t>(row) * a.units + first + pair;
    *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(results + row * kPitch + pair);
  }
  let_copies_write();
  sync_groups(kMultipliers);
}

#endif

/// kTiles: of 64 rows, for a group.
template <int kOutputs, int kTiles, bool kPairs>
__global__ void __launch_bounds__(kThreads, 1)
    wide_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kRows = kTileRows * kGroups * kTiles;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages];
  const int group = threadIdx.x / 128;
  const Ring ring{shared_address(memory), shared_address(full), shared_address(empty), a.stages};
  const int part = blockIdx.y, begin = a.chunks * part / a.parts,
            end = a.chunks * (part + 1) / a.parts;
  let_next_start();
  if (threadIdx.x == kMultipliers) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.stages; ++i) {
      init_barrier(ring.full + 8 * i, 1);
      init_barrier(ring.empty + 8 * i, kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  if (group == kGroups) {
    give_registers<24>();
    if (threadIdx.x == kMultipliers) ask_for_tiles<kOutputs, kRows, kPairs>(a, ring, begin, end);
    return;
  }
  take_registers<240>();
  wait_for_inputs();
  constexpr SharedLayout kLayout(kRows, kOutputs, kMaxStages);
  constexpr int kMostUsed = kTiles > 1 ? kTiles - 1 : 1;
  const bool has_last = a.rows > row_of_tile(group, kTiles - 1);
  float sum[kTiles][kOutputs / 2];
  Place place;
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int last =
        has_last ? multiply_tiles<kOutputs, kRows, kTiles>(ring, place, end - begin, group, sum)
                 : multiply_tiles<kOutputs, kRows, kMostUsed>(ring, place, end - begin, group, sum);
    const auto give_back = [&] {
      if (threadIdx.x % 128 == 0) arrive(ring.empty + 8 * last);
    };
    if constexpr (kPairs) {
      void* results = memory + last * kLayout.slot_bytes;
      write_gated<kOutputs>(a, static_cast<__nv_bfloat16*>(results), tile, group, sum);
      give_back();
    } else {
      give_back();
      write_parts<kOutputs>(a, tile, group, sum);
    }
  }
#endif
}

}  // namespace slime::kernels::cuda::wide
