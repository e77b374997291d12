/// Persistent thread blocks with tiles of 128 or 256 rows of an expert by 128 of its outputs, as fp8_many.cu has them of one
/// matrix. A tile begins with any row, but copies of factors with a multiple of four: up to three factors of the expert
/// before come first.

#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/experts/grouped_work.cuh"
#include "kernels/cuda/fp8/copies.cuh"
#include "kernels/cuda/fp8/grouped.h"
#include "kernels/cuda/fp8/many_rows.cuh"
#include "kernels/cuda/fp8/products.h"
#include "kernels/cuda/fp8/tile_maps.h"
#include "kernels/cuda/fp8/wgmma_e4m3.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::fp8 {
namespace {

constexpr int kTile = 128, kSlab = 128;  // outputs, inputs
constexpr int kTileBytes = kTile * kSlab;
constexpr int kConsumers = 256, kThreads = kConsumers + 128;
constexpr int kOfOthers = 4;  // factors of other rows that a copy may begin or end with

/// kHalves: products of 64 rows that a warpgroup has in a tile.
template <int kHalves>
struct Shape {
  static constexpr int kRows = 128 * kHalves;
  static constexpr int kStages = kHalves == 1 ? 6 : 4;
  static constexpr int kXBytes = kRows * kSlab, kStageBytes = kXBytes + kTileBytes;
};

struct Arguments {
  CUtensorMap weights, x;
  GroupedCodes call;
  int slabs = 0, pitch = 0, experts = 0, outputs = 0, column_tiles = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A producer's part of all stages of all tiles: `copy` (item, slab, stage, barrier).
template <int kHalves, typename Copy>
__device__ void fill_stages(const Arguments& a, const GroupedWork& work, const Pipeline& pipeline,
                            const Copy& copy) {
  using S = Shape<kHalves>;
  PipelineState state;
  int filled = 0;
  for_each_grouped_item<S::kRows>(work, a.experts, 0, [&](const GroupedItem& item) {
    for (int slab = 0; slab < a.slabs; ++slab) {
      if (filled >= S::kStages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      ++filled;
      copy(item, slab, state.stage, pipeline.full + 8 * state.stage);
      state.advance(1, S::kStages);
    }
  });
}

template <int kHalves>
__device__ void load_weights(const Arguments& a, const GroupedWork& work,
                             const Pipeline& pipeline) {
  using S = Shape<kHalves>;
  prefetch_map(a.weights);
  fill_stages<kHalves>(
      a, work, pipeline, [&](const GroupedItem& item, int slab, int stage, uint32_t barrier) {
        arrive_expect_tx(barrier, kTileBytes);
        copy_codes(pipeline.memory + stage * S::kStageBytes + S::kXBytes, a.weights, kSlab * slab,
                   item.expert * a.outputs + kTile * item.column_tile, barrier);
      });
}

template <int kHalves>
__device__ void load_x(const Arguments& a, const GroupedWork& work, const Pipeline& pipeline,
                       uint32_t factors) {
  using S = Shape<kHalves>;
  prefetch_map(a.x);
  fence_async_global();
  fill_stages<kHalves>(
      a, work, pipeline, [&](const GroupedItem& item, int slab, int stage, uint32_t barrier) {
        const int row = item.first + S::kRows * item.row_tile, begin = row & ~3;
        const uint32_t factor_bytes = 4 * min(S::kRows + kOfOthers, a.pitch - begin);
        arrive_expect_tx(barrier, S::kXBytes + factor_bytes);
        copy_codes(pipeline.memory + stage * S::kStageBytes, a.x, kSlab * slab, row, barrier);
        copy_bytes(factors + 4 * (S::kRows + kOfOthers) * stage,
                   a.call.x.factors_CP + static_cast<int64_t>(slab) * a.pitch + begin, factor_bytes,
                   barrier);
      });
}

/// Factors of the weights of a tile.
struct TileFactors {
  const float* of_expert;
  int64_t row;  // of all its outputs; -1: they have several
};

__device__ inline TileFactors factors_of(const Arguments& a, const GroupedItem& item) {
  const ExpertNumbers& weight = a.call.weight;
  const int first = kTile * item.column_tile, last = min(first + kTile, a.outputs) - 1;
  const int64_t row = __ldg(weight.factor_row_O + first);
  return {weight.factors_EBC + item.expert * weight.factor_rows * a.slabs,
          row == __ldg(weight.factor_row_O + last) ? row : -1};
}

/// `row`: this thread's first one, of the tile.
__device__ void store_tile(const Arguments& a, const GroupedItem& item, int tile_rows, int row,
                           const float (&sum)[64]) {
  const int quarter = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int of_expert = tile_rows * item.row_tile + row + 8 * half;
    const bool is_inside = of_expert < item.rows;
    auto* line = static_cast<__nv_bfloat16*>(a.call.y_SO) +
                 static_cast<int64_t>(item.first + of_expert) * a.outputs;
#pragma unroll
    for (int j = 0; j < 16; j += 4) {
      const auto two = [&](int group) {
        const float* c = sum + 4 * (j + group) + 2 * half;
        return pack<__nv_bfloat16>(c[0], c[1]);
      };
      const uint4 eight = turned(two(0), two(1), two(2), two(3));
      const int output = kTile * item.column_tile + 8 * (j + quarter);
      if (is_inside && output < a.outputs) *reinterpret_cast<uint4*>(line + output) = eight;
    }
  }
}

/// kWhole: all outputs have one row of factors.
template <int kHalves, bool kWhole>
__device__ void multiply_slabs(const Arguments& a, const Pipeline& pipeline,
                               const float (*x_factors)[Shape<kHalves>::kRows + kOfOthers],
                               const GroupedItem& item, const TileFactors& factors,
                               PipelineState& state, float (&sum)[kHalves][64]) {
  using S = Shape<kHalves>;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = 64 * kHalves * group + 16 * warp + lane / 4;
  const int place = local + (item.first + S::kRows * item.row_tile) % 4;  // of its factor
  const float* of_weights = factors.of_expert + (kWhole ? factors.row * a.slabs : 0);
  float dot[64] = {};  // once: what a product overwrites is no reason to clear it each time
  for (int slab = 0; slab < a.slabs; ++slab) {
    const float of_w = kWhole ? __ldg(of_weights + slab) : 0.0F;
    wait(pipeline.full + 8 * state.stage, state.phase);
    const uint32_t stage = pipeline.memory + state.stage * S::kStageBytes;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      wgmma_fence();
      wgmma_block(dot, stage + 64 * kSlab * (kHalves * group + half), stage + S::kXBytes);
      wgmma_commit_group();
      const float low = x_factors[state.stage][place + 64 * half],
                  high = x_factors[state.stage][place + 64 * half + 8];
      wgmma_wait_group<0>();
      settle(dot);
      if (half == kHalves - 1) {
        __syncwarp();  // all lanes have read the factors
        if (lane == 0) arrive(pipeline.empty + 8 * state.stage);
      }
      if constexpr (!kWhole) {
        add_slab(sum[half], dot, low, high,
                 {a.call.weight.factor_row_O, factors.of_expert + slab, a.slabs},
                 kTile * item.column_tile, a.outputs);
      } else {
        add_slab(sum[half], dot, low * of_w, high * of_w);
      }
    }
    state.advance(1, S::kStages);
  }
}

template <int kHalves>
__device__ void multiply_tiles(const Arguments& a, const GroupedWork& work,
                               const Pipeline& pipeline,
                               const float (*x_factors)[Shape<kHalves>::kRows + kOfOthers]) {
  using S = Shape<kHalves>;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = 64 * kHalves * group + 16 * warp + lane / 4;
  PipelineState state;
  for_each_grouped_item<S::kRows>(work, a.experts, 0, [&](const GroupedItem& item) {
    const TileFactors factors = factors_of(a, item);
    float sum[kHalves][64] = {};
    if (factors.row < 0) {
      multiply_slabs<kHalves, false>(a, pipeline, x_factors, item, factors, state, sum);
    } else {
      multiply_slabs<kHalves, true>(a, pipeline, x_factors, item, factors, state, sum);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      store_tile(a, item, S::kRows, local + 64 * half, sum[half]);
  });
}

#endif

template <int kHalves>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_codes_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  using S = Shape<kHalves>;
  __shared__ GroupedWork work;
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  __shared__ __align__(16) float factors[S::kStages][S::kRows + kOfOthers];
  const Pipeline pipeline{shared_address(memory), shared_address(full), shared_address(empty),
                          S::kStages};
  launch_dependents();
  if (threadIdx.x == kConsumers) {
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(pipeline.full + 8 * i, 2);  // of weights and of x
      init_barrier(pipeline.empty + 8 * i, kConsumers / 32);
    }
    fence_barrier_init();
  }
  grid_dependency_wait();
  list_grouped_work<kThreads, S::kRows>(work, a.call.starts_E1, a.experts, 0, a.column_tiles);
  if (threadIdx.x >= kConsumers) {
    decrease_registers<24>();
    if (threadIdx.x == kConsumers) load_weights<kHalves>(a, work, pipeline);
    if (threadIdx.x == kConsumers + 32) load_x<kHalves>(a, work, pipeline, shared_address(factors));
  } else {
    increase_registers<240>();
    multiply_tiles<kHalves>(a, work, pipeline, factors);
  }
#endif
}

template <int kHalves>
void run(const GroupedCodes& call, cudaStream_t stream) {
  using S = Shape<kHalves>;
  constexpr auto kKernel = grouped_codes_kernel<kHalves>;
  const ExpertNumbers& weight = call.weight;
  Arguments a;
  a.call = call;
  a.experts = static_cast<int>(weight.experts);
  a.outputs = static_cast<int>(weight.outputs);
  a.weights = code_map(weight.codes_EOI, 1, weight.experts * weight.outputs, weight.inputs, kTile);
  a.x = code_map(call.x.codes_TI, 1, call.rows, weight.inputs, S::kRows);
  a.slabs = static_cast<int>(divide_up(weight.inputs, int64_t{kSlab}));
  a.pitch = static_cast<int>(factor_pitch(call.rows));
  a.column_tiles = divide_up(a.outputs, kTile);
  const int64_t most = (call.rows / S::kRows + weight.experts) * a.column_tiles;
  allow_shared_memory<kKernel>(S::kStages * S::kStageBytes);
  launch(kKernel, dim3(static_cast<unsigned>(std::min<int64_t>(most, num_processors()))),
         dim3(kThreads), S::kStages * S::kStageBytes, stream, a);
}

}  // namespace

bool has_grouped_codes(int64_t experts, int64_t outputs, int64_t inputs) {
  return has_products() && experts <= kMostGroupedExperts && outputs % 8 == 0 && inputs % 16 == 0;
}

void grouped_codes(const GroupedCodes& call, cudaStream_t stream) {
  const ExpertNumbers& weight = call.weight;
  if (!has_grouped_codes(weight.experts, weight.outputs, weight.inputs))
    throw std::runtime_error("no grouped product of codes of these sizes");
  if (call.rows == 0) return;
  // With fewer rows of an expert a larger tile would be less than three quarters full.
  call.rows >= 384 * weight.experts ? run<2>(call, stream) : run<1>(call, stream);
}

}  // namespace slime::kernels::cuda::fp8
