#pragma once

/// The kernel of kernels/cuda/experts/expert_product.h.
///
/// Warp-specialised and persistent: an item is a tile of up to 128 weight rows of one expert with
/// one chunk of the rows that visit it. One producer thread copies weights by TMA, two producer
/// warps gather x by asynchronous copies, 128 inputs a stage, through a pipeline in shared memory
/// that runs on from item to item; two consumer warpgroups each multiply 64 of the weight rows
/// (M of wgmma) with all rows of the chunk (N). Where a tile or a chunk ends early whatever bytes
/// lie behind are multiplied too; those accumulators are not stored.

#include <cuda.h>

#include "kernels/cuda/experts/expert_tiling.h"
#include "kernels/cuda/experts/expert_work.cuh"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/products/warpgroup.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::experts {

inline constexpr int kSlabs = 2, kSlabInputs = 64, kStageInputs = kSlabs * kSlabInputs;
inline constexpr int kSlabBytes = 128 * kTileRows, kWeightBytes = kSlabs * kSlabBytes;
inline constexpr int kGatherThreads = 64;
inline constexpr int kConsumerThreads = 256, kThreads = kConsumerThreads + 128;
inline constexpr int kMaxStages = 6;
inline constexpr int kSharedBytes = 212 << 10;  // dynamic; the list of work comes on top

template <int kMostRows>
struct Layout {
  static constexpr int kRows = kMostRows;
  /// Of the weights of a stage: copies, the inputs of each, and where x begins behind them.
  static constexpr int kCopies = kSlabs, kInputs = kSlabInputs, kXBegin = kWeightBytes;
  static constexpr int kXBytes = kSlabs * 128 * kRows;
  static constexpr int kStride = kXBegin + kXBytes;
  /// Results of a tile, [row, pitch]: what a warp writes at once lies in different banks.
  static constexpr int kPitch = kTileRows + 8;
  static constexpr int kResultBytes = kRows * kPitch * 2;
  static constexpr int kFitting = (kSharedBytes - kResultBytes) / kStride;
  static constexpr int kStages = kFitting < kMaxStages ? kFitting : kMaxStages;
  static constexpr int kBytes = kStages * kStride + kResultBytes;
  static_assert(mask_bytes(kMostExpertRows, kMostExperts) <= kBytes);
};

struct Arguments {
  CUtensorMap weights;
  ExpertProduct call;
  int tile_units = 0, tiles = 0, k_tiles = 0, stages_in_flight = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Eight gates, their eight ups, the next eight gates and so on (expert_pair_map()).
__device__ inline void copy_expert_pairs(uint32_t to, const CUtensorMap& map, int input, int expert,
                                         int eight, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(&map), "r"(input), "r"(0), "r"(2 * expert), "r"(eight), "r"(barrier),
      "l"(evict_first_policy())
      : "memory");
}

/// Calls fn(chunk, tile) for the items of this thread block.
template <typename Fn>
__device__ void for_each_item(const Arguments& a, const Work& work, const Fn& fn) {
  const int items = work.num_chunks * a.tiles;
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x)
    fn(work.chunk[item / a.tiles], item % a.tiles);
}

/// Producer of the weights, by one thread. L: a Layout, or one like it.
template <typename L, bool kGated>
__device__ void load_weights(const Arguments& a, const Work& work, const Pipeline& pipeline) {
  const int slab_bytes = 128 * a.tile_units * (kGated ? 2 : 1);
  PipelineState state, oldest;  // oldest: of the stages that may still be in flight
  int loaded = 0;
  for_each_item(a, work, [&](const Chunk& chunk, int tile) {
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile, ++loaded) {
      if (loaded >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      if (loaded >= a.stages_in_flight) {
        wait(pipeline.full + 8 * oldest.stage, oldest.phase);
        oldest.advance(1, pipeline.stages);
      }
      const uint32_t barrier = pipeline.full + 8 * state.stage;
      const uint32_t to = pipeline.memory + state.stage * L::kStride;
      arrive_expect_tx(barrier, L::kCopies * slab_bytes);
#pragma unroll
      for (int slab = 0; slab < L::kCopies; ++slab) {
        const int input = k_tile * kStageInputs + slab * L::kInputs;
        if constexpr (kGated) {
          copy_expert_pairs(to + slab * kSlabBytes, a.weights, input, chunk.expert,
                            tile * a.tile_units / 8, barrier);
        } else {
          copy_rows_once(to + slab * kSlabBytes, a.weights, input,
                         chunk.expert * a.call.units + tile * a.tile_units, barrier);
        }
      }
      state.advance(1, pipeline.stages);
    }
  });
}

/// Producers of x, by two warps. Pieces of 16 bytes are stored as tile_map() swizzles them: a thread
/// has one piece of every fourth row. Where rows are and where they go is worked out once an item:
/// two warps that did it for each piece of each stage were slower than the memory.
template <typename L, bool kGated>
__device__ void gather_x(const Arguments& a, const Work& work, const Pipeline& pipeline,
                         uint32_t x_full) {
  constexpr int kRows = L::kRows, kPieces = kSlabs * 8;  // of a row in a stage
  constexpr int kStep = kGatherThreads / kPieces, kEach = kRows / kStep;
  static_assert(kStep == 4);  // so that rows of a thread have two swizzles, even and odd ones
  const int thread = static_cast<int>(threadIdx.x) % kGatherThreads;
  const int first_row = thread / kPieces, slab = thread % kPieces / 8, piece = thread % 8;
  const int first_input = slab * kSlabInputs + piece * 8;
  const auto* x = static_cast<const __nv_bfloat16*>(a.call.x);
  const uint32_t line = pipeline.memory + L::kXBegin + slab * 128 * kRows + 128 * first_row;
  const uint32_t to_even = line + ((piece ^ first_row) << 4);
  const uint32_t to_odd = line + 128 * kStep + ((piece ^ (first_row + kStep)) << 4);
  PipelineState state;
  int loaded = 0;
  for_each_item(a, work, [&](const Chunk& chunk, int) {
    const int rows = chunk.rows - first_row;  // that this thread has, times kStep
    uint32_t from[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      from[j] = 0;
      if (kStep * j >= rows) continue;
      const uint32_t visit = work.visit[chunk.first + first_row + kStep * j];
      const uint32_t row = kGated ? visit / static_cast<uint32_t>(a.call.per_token) : visit;
      from[j] = row * static_cast<uint32_t>(a.call.inputs);
    }
    int input = first_input;
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile, ++loaded, input += kStageInputs) {
      if (loaded >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      const uint32_t stage = state.stage * L::kStride;
      const bool is_inside = input < a.call.inputs;
      const auto* at = x + (is_inside ? input : 0);
      const int bytes = is_inside ? 16 : 0;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (kStep * j >= rows) continue;
        copy_piece((j % 2 == 0 ? to_even : to_odd) + stage + 128 * kStep * (j / 2 * 2),
                   at + from[j], bytes);
      }
      arrive_with_pieces(x_full + 8 * state.stage);
      state.advance(1, pipeline.stages);
    }
  });
}

/// Main loop of a consumer warpgroup over one item: the accumulators of its 64 weight rows.
template <int kRows>
__device__ void multiply(const Pipeline& pipeline, uint32_t x_full, PipelineState& state, int count,
                         int group, float (&sum)[kRows / 2]) {
#pragma unroll
  for (float& s : sum) s = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    wait(pipeline.full + 8 * state.stage, state.phase);
    wait(x_full + 8 * state.stage, state.phase);
    fence_async_shared();  // x was not written by TMA, and is read as if it were
    const uint32_t stage = pipeline.memory + state.stage * Layout<kRows>::kStride;
    wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const uint64_t weights = matrix_descriptor(stage + slab * kSlabBytes + 128 * 64 * group);
      const uint64_t x = matrix_descriptor(stage + kWeightBytes + slab * 128 * kRows);
#pragma unroll
      for (int k = 0; k < kSlabInputs / 16; ++k) wgmma(sum, weights + 2 * k, x + 2 * k);
    }
    wgmma_commit_group();
    // Memory is what a stage waits for, not the matrix units: nothing is gained by a second group in
    // flight.
    wgmma_wait_group<0>();
    settle(sum);
    if (threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * state.stage);
    state.advance(1, pipeline.stages);
  }
}

/// From accumulators through shared memory, [row, unit], to memory, 16 bytes a thread at once.
template <typename L, bool kGated>
__device__ void write_results(const Arguments& a, const Work& work, const Chunk& chunk, int tile,
                              int group, const float (&sum)[L::kRows / 2], __nv_bfloat16* results) {
  constexpr int kRows = L::kRows, kPitch = L::kPitch;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  sync_consumers(kConsumerThreads);  // nobody still reads the results of the item before
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const int row = 8 * n + 2 * (lane % 4);
    const float* c = sum + 4 * n;  // two rows of the weight row, two of the one eight further
    if constexpr (kGated) {
      __nv_bfloat16* to = results + row * kPitch + 32 * group + 8 * warp + lane / 4;
      to[0] = from_float<__nv_bfloat16>(gated<__nv_bfloat16>(c[0], c[2]));
      to[kPitch] = from_float<__nv_bfloat16>(gated<__nv_bfloat16>(c[1], c[3]));
    } else {
      __nv_bfloat16* to = results + row * kPitch + 64 * group + 16 * warp + lane / 4;
      to[0] = from_float<__nv_bfloat16>(c[0]);
      to[kPitch] = from_float<__nv_bfloat16>(c[1]);
      to[8] = from_float<__nv_bfloat16>(c[2]);
      to[kPitch + 8] = from_float<__nv_bfloat16>(c[3]);
    }
  }
  sync_consumers(kConsumerThreads);
  const int begin = tile * a.tile_units, pieces = min(a.tile_units, a.call.units - begin) / 8;
  auto* y = static_cast<__nv_bfloat16*>(a.call.y_VU) + begin;
  for (int i = threadIdx.x; i < chunk.rows * pieces; i += kConsumerThreads) {
    const int row = i / pieces, piece = i % pieces;
    const int visit = work.visit[chunk.first + row];
    reinterpret_cast<uint4*>(y + static_cast<int64_t>(visit) * a.call.units)[piece] =
        *reinterpret_cast<const uint4*>(results + row * kPitch + 8 * piece);
  }
}

/// By one thread. Arrivals of whoever brings x, when it is there, and of the consumers, when a stage is free.
__device__ inline void init_stages(const CUtensorMap& weights, const Pipeline& pipeline,
                                   uint32_t x_full, int stages, int of_x, int of_consumers) {
  prefetch_map(weights);
  for (int i = 0; i < stages; ++i) {
    init_barrier(pipeline.full + 8 * i, 1);
    init_barrier(x_full + 8 * i, of_x);
    init_barrier(pipeline.empty + 8 * i, of_consumers);
  }
  fence_barrier_init();
}

/// By the threads behind the consumers.
template <typename L, bool kGated>
__device__ void load_stages(const Arguments& a, const Work& work, const Pipeline& pipeline,
                            uint32_t x_full) {
  const int warp = (threadIdx.x - kConsumerThreads) / 32;
  if (threadIdx.x == kConsumerThreads) load_weights<L, kGated>(a, work, pipeline);
  if (warp >= 2) {
    grid_dependency_wait();
    gather_x<L, kGated>(a, work, pipeline, x_full);
  }
}

/// Adds a call, and the experts that it visits, where somebody counts.
__device__ inline void count_visits(const Arguments& a, const Work& work) {
  if (a.call.visited != nullptr && blockIdx.x == 0 && threadIdx.x < 2)
    atomicAdd(a.call.visited + threadIdx.x,
              threadIdx.x == 0 ? 1ULL : static_cast<unsigned long long>(work.num_visited));
}

#endif

/// kRows: rows of a chunk at most, N of the wgmma instruction: 8, 16, 32 or 64.
template <int kRows, bool kGated>
__global__ void __launch_bounds__(kThreads, 1)
    expert_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<kRows>;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Work work;
  __shared__ uint64_t full[kMaxStages], x_full[kMaxStages], empty[kMaxStages];
  const Pipeline pipeline{shared_address(memory), shared_address(full), shared_address(empty),
                          L::kStages};
  if (threadIdx.x == kConsumerThreads)
    init_stages(a.weights, pipeline, shared_address(x_full), L::kStages, kGatherThreads,
                kConsumerThreads / 128);
  // The kernel behind the gated product reads expert_V at once: its start is also the sign that
  // this one has seen expert_V complete.
  if constexpr (kGated) grid_dependency_wait();
  launch_dependents();
  list_work<kThreads>(work, reinterpret_cast<uint32_t*>(memory), a.call.expert_V, a.call.rows,
                      a.call.per_token, a.call.experts, kRows);
  if (threadIdx.x >= kConsumerThreads) {
    load_stages<L, kGated>(a, work, pipeline, shared_address(x_full));
    return;
  }
  grid_dependency_wait();
  count_visits(a, work);
  const int group = threadIdx.x / 128;
  auto* results = reinterpret_cast<__nv_bfloat16*>(memory + L::kStages * L::kStride);
  float sum[kRows / 2];
  PipelineState state;
  for_each_item(a, work, [&](const Chunk& chunk, int tile) {
    multiply<kRows>(pipeline, shared_address(x_full), state, a.k_tiles, group, sum);
    write_results<L, kGated>(a, work, chunk, tile, group, sum, results);
  });
#endif
}

}  // namespace slime::kernels::cuda::experts
