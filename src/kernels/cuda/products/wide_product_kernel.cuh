#pragma once

/// The kernel of kernels/cuda/products/wide_product.h.
///
/// Warp-specialised and persistent: a thread block computes tiles of up to 192 outputs (weight
/// rows) by all rows of x over one K split, tile after tile. One producer thread copies x and
/// weights, 64 inputs a stage, through a pipeline in shared memory; two consumer warpgroups each
/// multiply every other 64 rows with all outputs of the tile. Behind the last row they multiply
/// whatever bytes lie there; those accumulators are not stored. During the epilogue the stages of
/// the next tile are in flight.

#include <cuda.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/low_rank_prefetch.cuh"
#include "kernels/cuda/products/low_rank_ready.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/products/warpgroup.cuh"
#include "kernels/cuda/products/wide_product_addition.cuh"
#include "kernels/cuda/products/wide_product_tiling.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::wide {

struct Arguments {
  CUtensorMap weights, x;
  const __nv_bfloat16* bias_O = nullptr;
  void* y = nullptr;
  int rows = 0, units = 0;  // units: outputs, or gate-up pairs
  int tiles = 0, k_tiles = 0, splits = 1, stages = 0;
  LowRankAddition addition;
};

inline constexpr int kConsumerThreads = 128 * kGroups, kThreads = kConsumerThreads + 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The producer, by one thread.
template <int kOutputs, int kRows, bool kPairs, bool kAdds>
__device__ void load_tiles(const Arguments& a, const Pipeline& pipeline, int begin, int end) {
  constexpr SharedLayout kLayout(kRows, kOutputs, kMaxStages);
  const auto load_weights = [&](int tile, int k_tile, int slot) {
    const uint32_t barrier = pipeline.full + 8 * slot;
    const uint32_t to = pipeline.memory + slot * kLayout.stage_stride + kLayout.x_bytes;
    arrive_expect_tx(barrier, 128 * (a.rows + kOutputs));
    if constexpr (kPairs) {
      copy_pairs_once(to, a.weights, tile * (kOutputs / 8), k_tile, barrier);
    } else {
      copy_tile_once(to, a.weights, tile * kOutputs, k_tile, barrier);
    }
  };
  const auto load_x = [&](int k_tile, int slot) {
    copy_tile(pipeline.memory + slot * kLayout.stage_stride, a.x, 0, k_tile,
              pipeline.full + 8 * slot);
  };
  // Prologue, all stages once: weights at once, x after the preceding kernels.
  const int prefetched = min(end - begin, pipeline.stages);
  for (int i = 0; i < prefetched; ++i) load_weights(blockIdx.x, begin + i, i);
  prefetch_map(a.x);
  if (kAdds && a.addition.ready != nullptr) {
    wait_for_announced_x(a.addition.ready);
  } else {
    grid_dependency_wait();
  }
  fence_async_global();
  for (int i = 0; i < prefetched; ++i) load_x(begin + i, i);
  PipelineState state;
  state.advance(prefetched, pipeline.stages);
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const bool is_first = tile == blockIdx.x;
    for (int k_tile = is_first ? begin + prefetched : begin; k_tile < end; ++k_tile) {
      wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      load_weights(tile, k_tile, state.stage);
      load_x(k_tile, state.stage);
      state.advance(1, pipeline.stages);
    }
  }
}

/// Main loop of a consumer warpgroup: accumulators of its row tiles, of which tile t begins at row
/// 64 (group + kGroups t). kUsed: tiles that have rows. Returns the index of the last stage, which
/// the caller releases.
template <int kOutputs, int kRows, int kUsed, int kTiles>
__device__ int multiply_tiles(const Pipeline& pipeline, PipelineState& state, int count, int group,
                              float (&sum)[kTiles][kOutputs / 2]) {
  constexpr SharedLayout kLayout(kRows, kOutputs, kMaxStages);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (float& x : sum[t]) x = 0;
  }
  int last = 0;
#pragma unroll 1
  for (int i = 0; i < count;
       ++i) {  // unrolled, the remainder would move accumulators of wgmmas in flight
    wait(pipeline.full + 8 * state.stage, state.phase);
    const uint32_t stage = pipeline.memory + state.stage * kLayout.stage_stride;
    const uint64_t x = matrix_descriptor(stage + 128 * kTileRows * group);
    const uint64_t weights = matrix_descriptor(stage + kLayout.x_bytes);
    constexpr int kNextTile = 128 * kTileRows * kGroups >> 4, kNextInputs = 32 >> 4;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSlabInputs / 16; ++k) {
#pragma unroll
      for (int t = 0; t < kUsed; ++t)
        wgmma(sum[t], x + kNextTile * t + kNextInputs * k, weights + kNextInputs * k);
    }
    wgmma_commit_group();
    wgmma_wait_group<1>();
    if (i > 0 && threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    last = state.stage;
    state.advance(1, pipeline.stages);
  }
  wgmma_wait_group<0>();
#pragma unroll
  for (int t = 0; t < kUsed; ++t) settle(sum[t]);
  return last;
}

__device__ inline int row_of_tile(int group, int t) { return kTileRows * (group + kGroups * t); }

/// Row of a thread's first accumulators of tile t; its others are eight rows further.
__device__ inline int row_of(int group, int t) {
  return row_of_tile(group, t) + 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4;
}

/// Epilogue of split-K: accumulators go to memory as they are, float32 [split, row, output]. A warp
/// writes 32 contiguous bytes for each of eight rows.
template <int kOutputs, int kTiles>
__device__ void write_partial_sums(const Arguments& a, int tile, int group,
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

/// Epilogue of SwiGLU. Of eight adjacent accumulator columns four are gates and four the ups of the
/// same pairs: a thread with gates of rows r and r + 8 and the one with their ups exchange halves
/// by a shuffle, so that the first has all of row r and the other all of row r + 8. Results pass
/// through shared memory, bfloat16 [row, pair], so that stores to global memory are coalesced.
template <int kOutputs, int kTiles>
__device__ void write_swiglu(const Arguments& a, __nv_bfloat16* results, int tile, int group,
                             const float (&sum)[kTiles][kOutputs / 2]) {
  constexpr int kPairs = kOutputs / 2, kPitch = SharedLayout::pitch(kPairs);
  const int quarter = threadIdx.x % 4, first = tile * kPairs;
  const bool has_gates = quarter < 2;
  sync_consumers(kConsumerThreads);  // neither warpgroup still reads the stage
#pragma unroll
  for (int j = 0; j < kOutputs / 8; ++j) {
    const int pair = 4 * j + 2 * (quarter % 2);
    float2 gate_bias = make_float2(0, 0), up_bias = make_float2(0, 0);
    if (a.bias_O != nullptr && first + pair < a.units) {
      const auto read = [&](int unit) {
        return unpack<__nv_bfloat16>(*reinterpret_cast<const uint32_t*>(a.bias_O + unit));
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
          pack<__nv_bfloat16>(gated<__nv_bfloat16>(gate.x + gate_bias.x, up.x + up_bias.x),
                              gated<__nv_bfloat16>(gate.y + gate_bias.y, up.y + up_bias.y));
    }
  }
  sync_consumers(kConsumerThreads);
  constexpr int kPiece = 4;  // results that a thread stores at once
  const int pieces = min(kPairs, a.units - first) / kPiece;
  for (int n = threadIdx.x; n < a.rows * pieces; n += kConsumerThreads) {
    const int row = n / pieces, pair = n % pieces * kPiece;
    auto* y = static_cast<__nv_bfloat16*>(a.y) + static_cast<int64_t>(row) * a.units + first + pair;
    *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(results + row * kPitch + pair);
  }
  fence_async_shared();
  sync_consumers(kConsumerThreads);
}

#endif

/// kTiles: row tiles of a warpgroup. kPairs: epilogue SwiGLU, otherwise split-K. kAdds: has an addition, for which
/// there are no registers to spare.
template <int kOutputs, int kTiles, bool kPairs, bool kAdds>
__global__ void __launch_bounds__(kThreads, 1)
    wide_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kRows = kTileRows * kGroups * kTiles;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages];
  const int group = threadIdx.x / 128;
  const Pipeline pipeline{shared_address(memory), shared_address(full), shared_address(empty),
                          a.stages};
  const int split = blockIdx.y, begin = a.k_tiles * split / a.splits,
            end = a.k_tiles * (split + 1) / a.splits;
  launch_dependents();
  if (threadIdx.x == kConsumerThreads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.stages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, kGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (group == kGroups) {
    decrease_registers<24>();
    if (threadIdx.x == kConsumerThreads)
      load_tiles<kOutputs, kRows, kPairs, kAdds>(a, pipeline, begin, end);
    return;
  }
  increase_registers<240>();
  if constexpr (kAdds) {
    prefetch_addition(a.addition, kOutputs, threadIdx.x, kConsumerThreads, [&](int column) {
      return output_of<kOutputs, kPairs>(a.units, blockIdx.x, column);
    });
  } else {
    grid_dependency_wait();  // results that others may still read
  }
  constexpr SharedLayout kLayout(kRows, kOutputs, kMaxStages);
  constexpr int kMostUsed = kTiles > 1 ? kTiles - 1 : 1;
  const bool has_last = a.rows > row_of_tile(group, kTiles - 1);
  float sum[kTiles][kOutputs / 2];
  PipelineState state;
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int last =
        has_last
            ? multiply_tiles<kOutputs, kRows, kTiles>(pipeline, state, end - begin, group, sum)
            : multiply_tiles<kOutputs, kRows, kMostUsed>(pipeline, state, end - begin, group, sum);
    if constexpr (kAdds) grid_dependency_wait();  // h, and results that others may still read
    const auto release_stage = [&] {
      if (threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    };
    if constexpr (kAdds) {
      auto* staged = reinterpret_cast<uint32_t*>(memory + last * kLayout.stage_stride);
      static_assert(4 * kStagedPitch * kOutputs <= kLayout.stage_stride);
      if (split == 0)
        add_adapters<kOutputs, kPairs, kTiles>(
            a.addition, a.rows, a.units, tile, kConsumerThreads, staged,
            [&](int t) { return row_of(group, t); }, sum);
      if constexpr (!kPairs) {
        fence_async_shared();
        sync_consumers(kConsumerThreads);
      }
    }
    if constexpr (kPairs) {
      void* results = memory + last * kLayout.stage_stride;
      write_swiglu<kOutputs>(a, static_cast<__nv_bfloat16*>(results), tile, group, sum);
      release_stage();
    } else {
      release_stage();
      write_partial_sums<kOutputs>(a, tile, group, sum);
    }
  }
#endif
}

}  // namespace slime::kernels::cuda::wide
