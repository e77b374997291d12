#pragma once

/// The kernel of kernels/cuda/products/batch_product.h.
///
/// Warp-specialised: a thread block computes up to 192 outputs (weight rows) over one K split. One
/// producer thread copies weights and another x, stage by stage, through a pipeline in shared
/// memory; each consumer warpgroup (four warps) multiplies 64 of the outputs with all rows of x.
/// Where a warpgroup has fewer than 64 outputs it multiplies whatever bytes lie behind them; those
/// accumulators are not stored.

#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/batch_product_epilogue.cuh"
#include "kernels/cuda/products/batch_product_share.cuh"
#include "kernels/cuda/products/low_rank_addition.cuh"
#include "kernels/cuda/products/low_rank_prefetch.cuh"
#include "kernels/cuda/products/low_rank_ready.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/products/warpgroup.cuh"

namespace slime::kernels::cuda::batch {

struct Barriers {
  uint64_t full[kMaxStages], x_full[kMaxStages], empty[kMaxStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// By one thread; `threads`: of the consumers.
__device__ inline void init_stages(const Arguments& a, const Pipeline& pipeline, uint32_t x_full,
                                   int threads) {
  prefetch_map(a.weights);
  for (int i = 0; i < a.layout.stages; ++i) {
    init_barrier(pipeline.full + 8 * i, 1);
    init_barrier(x_full + 8 * i, 1);
    init_barrier(pipeline.empty + 8 * i, threads / 128);
  }
  fence_barrier_init();
}

/// Producer of the weights, by one thread. Starts before the preceding kernel ends.
template <int kSlabs>
__device__ void load_weights(const Arguments& a, const Pipeline& pipeline, int begin, int end) {
  const bool is_pairs = a.tiling.is_pairs;
  const int tile = 128 * a.tiling.box, first = blockIdx.x * a.tiling.box;
  const int bytes = kSlabs * (is_pairs ? 2 * tile : tile);
  PipelineState state, oldest;  // oldest: of the stages that may still be in flight
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    if (k_tile - begin >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
    if (k_tile - begin >= a.layout.stages_in_flight) {
      wait(pipeline.full + 8 * oldest.stage, oldest.phase);
      oldest.advance(1, pipeline.stages);
    }
    const uint32_t barrier = pipeline.full + 8 * state.stage;
    const uint32_t to = pipeline.memory + state.stage * a.layout.stage_stride;
    arrive_expect_tx(barrier, bytes);
    if (is_pairs) {
      // Each slab: gates, then ups.
      for (int s = 0; s < kSlabs; ++s) {
        const int slab = k_tile * kSlabs + s;
        copy_tile_once(to + 2 * s * tile, a.weights, first, slab, barrier);
        copy_tile_once(to + (2 * s + 1) * tile, a.weights, a.units + first, slab, barrier);
      }
    } else {
      copy_tile_once(to, a.weights, first, k_tile * kSlabs, barrier);
    }
    state.advance(1, pipeline.stages);
  }
}

/// Producer of x, by another thread, after the preceding kernels.
template <int kSlabs, bool kAdds>
__device__ void load_x(const Arguments& a, const Pipeline& pipeline, uint32_t x_full, int begin,
                       int end) {
  prefetch_map(a.x);
  if (kAdds && a.addition.ready != nullptr) {
    wait_for_announced_x(a.addition.ready);
  } else {
    grid_dependency_wait();
  }
  fence_async_global();
  PipelineState state;
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    if (k_tile - begin >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
    const uint32_t barrier = x_full + 8 * state.stage;
    arrive_expect_tx(barrier, 128 * kSlabs * a.layout.x_rows);
    copy_tile(pipeline.memory + state.stage * a.layout.stage_stride + a.layout.x_begin, a.x, 0,
              k_tile * kSlabs, barrier);
    state.advance(1, pipeline.stages);
  }
}

/// Main loop of a consumer warpgroup: the accumulators of its 64 outputs.
template <int kRows, int kSlabs>
__device__ void multiply_tiles(const Arguments& a, const Pipeline& pipeline, uint32_t x_full,
                               int count, int group, float (&sum)[kRows / 2]) {
  const int outputs = a.tiling.block_outputs();
  PipelineState state;
  int last = 0;
  for (int i = 0; i < count; ++i) {
    wait(pipeline.full + 8 * state.stage, state.phase);
    wait(x_full + 8 * state.stage, state.phase);
    const uint32_t stage = pipeline.memory + state.stage * a.layout.stage_stride;
    const uint32_t weights = stage + 128 * kGroupOutputs * group;
    const uint32_t x = stage + a.layout.x_begin;
    wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const uint64_t w_operand = matrix_descriptor(weights + 128 * slab * outputs);
      const uint64_t x_operand = matrix_descriptor(x + 128 * slab * a.layout.x_rows);
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma(sum, w_operand + 2 * k, x_operand + 2 * k);
    }
    wgmma_commit_group();
    if (i > 0) {
      wgmma_wait_group<1>();
      if (threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    }
    last = state.stage;
    state.advance(1, pipeline.stages);
  }
  wgmma_wait_group<0>();
}

#endif

/// Whether kernels may make adapters' h themselves, by warps behind the producers.
constexpr bool may_make_hidden(int rows, bool adds) { return adds && rows <= kMostMakingRows; }
/// For __launch_bounds__: such kernels have a multiprocessor for themselves, and 72 registers as the others.
constexpr int most_threads(bool may_make) {
  return may_make ? 896 : 128 * kMostGroups + kProducerThreads;
}

/// kRows: N of the wgmma instruction, rows of x rounded up to 8, 16, 32 or 64. kSlabs:
/// Tiling::slabs. kAdds: has an addition, for which registers are held through the main loop.
template <int kRows, int kSlabs, bool kAdds>
__global__ void __launch_bounds__(most_threads(may_make_hidden(kRows, kAdds)),
                                  may_make_hidden(kRows, kAdds) ? 1 : 2)
    batch_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  __shared__ int slot_T[kMostBatchRows];
  const bool makes = may_make_hidden(kRows, kAdds) && a.addition.flags != nullptr;
  const int threads = static_cast<int>(blockDim.x) - kProducerThreads - (makes ? kShareThreads : 0);
  const int group = threadIdx.x / 128;
  const Pipeline pipeline{shared_address(memory), shared_address(barriers.full),
                          shared_address(barriers.empty), a.layout.stages};
  const uint32_t x_full = shared_address(barriers.x_full);
  const int split = blockIdx.y, begin = a.tiling.k_tiles * split / a.tiling.splits,
            end = a.tiling.k_tiles * (split + 1) / a.tiling.splits;
  launch_dependents();
  if (threadIdx.x == threads) init_stages(a, pipeline, x_full, threads);
  __syncthreads();
  if (threadIdx.x >= threads) {
    if (threadIdx.x == threads) load_weights<kSlabs>(a, pipeline, begin, end);
    if (threadIdx.x == threads + 32) load_x<kSlabs, kAdds>(a, pipeline, x_full, begin, end);
    if constexpr (may_make_hidden(kRows, kAdds)) {
      const int behind = static_cast<int>(threadIdx.x) - threads - kProducerThreads;
      if (behind >= 0)
        make_hidden(a, behind, threads, split == 0,
                    reinterpret_cast<float*>(memory + a.layout.hidden_begin));
    }
    return;
  }
  float sum[kRows / 2] = {};
  if constexpr (!kAdds) {
    grid_dependency_wait();  // results that others may still read
    multiply_tiles<kRows, kSlabs>(a, pipeline, x_full, end - begin, group, sum);
  } else {
    const bool adds = split == 0;
    // Of more rows there are no registers for factors, since two thread blocks may share a multiprocessor.
    const bool stages = adds && a.addition.by_row.tiles == 0 &&
                        (makes || 4 * a.rows * staged_pitch(a.addition) <= a.layout.bytes);
    const bool holds = stages && kRows <= 32;
    const int first = kGroupOutputs * group + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const auto output_of_half = [&](int half) {
      return output_of(a.tiling, a.units, first + 8 * half);
    };
    HeldFactor held;
    if (holds) {
      held.load(a.addition, output_of_half);
    } else if (adds) {
      if (a.addition.by_row.tiles > 0) grid_dependency_wait();  // the tiles are the step's
      find_slots(a.addition, threads, slot_T);
      prefetch_addition(a.addition, a.tiling.block_outputs(), threadIdx.x, threads,
                        [&](int local) { return output_of(a.tiling, a.units, local); });
    }
    multiply_tiles<kRows, kSlabs>(a, pipeline, x_full, end - begin, group, sum);
    grid_dependency_wait();                       // h, and results that others may still read
    if (adds && !makes) sync_consumers(threads);  // slots, and no warp still reads the stages
    if (holds && makes) {
      wait_for_hidden(threads);
      add_held_factor<kRows / 8>(a.addition, a.rows, held,
                                 reinterpret_cast<const float*>(memory + a.layout.hidden_begin),
                                 output_of_half, sum);
    }
    auto* const staged = reinterpret_cast<float*>(memory);
    if (stages && !makes) {
      stage_hidden(a.addition, a.rows, threads, staged);
      sync_consumers(threads);
    }
    if (holds && !makes) {
      add_held_factor<kRows / 8>(a.addition, a.rows, held, staged, output_of_half, sum);
    } else if (adds && !holds) {
      add_low_rank<1, kRows / 8, false>(
          a.addition, a.rows, slot_T, stages ? staged : nullptr, staged_pitch(a.addition), 0, 1,
          HeldStep<1>(), [&](int, int half) { return output_of_half(half); }, sum);
    }
  }
  if (a.epilogue == Epilogue::kSplitK) {
    write_partial_sums<kRows>(a, group, sum);
  } else {
    write_outputs<kRows>(a, reinterpret_cast<float*>(memory), group, threads, sum);
  }
#endif
}

}  // namespace slime::kernels::cuda::batch
