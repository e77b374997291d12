/// Warp-specialised and persistent: a tile is 128 rows by 128 pairs, so 256 columns of the product,
/// gates in front of their ups. One producer thread copies both operands, 64 inputs a stage, through
/// a pipeline in shared memory that runs on from tile to tile; two consumer warpgroups multiply 64
/// rows of the tile each. A thread then has gate and up of a pair in accumulators c[i] and c[64 + i].
///
/// Results go through shared memory to be stored by TMA, which goes on while the next tile is
/// multiplied.
///
/// The last tiles of rows and of pairs begin so early that they end with the matrix. What two tiles
/// have, both make: the same bits.

#include "kernels/cuda/products/gated_product.h"

#include <algorithm>
#include <climits>
#include <stdexcept>

#include "core/divide_up.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/gated_epilogue.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/products/tile_map.h"
#include "kernels/cuda/products/warpgroup.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kTileRows = 128, kTilePairs = 128;
constexpr int kGroups = 2, kGroupRows = kTileRows / kGroups;
constexpr int kRowBytes = 2 * kTileRows * kSlab;          // of a stage
constexpr int kHalfWeightBytes = 2 * kTilePairs * kSlab;  // gates, or ups
constexpr int kStageBytes = kRowBytes + 2 * kHalfWeightBytes;
constexpr int kStages = 4;
constexpr int kResultSlabBytes = 2 * kGroupRows * kSlab;  // 64 pairs of a consumer's rows
constexpr int kResultBytes = kResultSlabBytes * (kTilePairs / kSlab);
constexpr int kSharedBytes = kStages * kStageBytes + kGroups * kResultBytes;
constexpr int kConsumers = 128 * kGroups, kThreads = kConsumers + 128;
constexpr int kSums = kTilePairs;  // a thread's accumulators
/// With fewer rows a second or third wave of tiles leaves most multiprocessors idle.
constexpr int kFewestRows = 769;

struct Arguments {
  CUtensorMap x, weights, y;
  CUtensorMap more_x, more_weights;
  const __nv_bfloat16* bias_2F = nullptr;
  int rows = 0, pairs = 0;
  int k_tiles = 0, of_x = 0;  // all, and those that are not of more inputs
  int row_tiles = 0, pair_tiles = 0;
  int band = 0;  // row tiles
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct Tile {
  int row, pair;  // the first of each
};

/// Calls fn(tile) for those of this thread block. Tiles that are made at the same time are about as
/// many rows as columns; the next band begins with the weights that the last one ended with.
template <typename Fn>
__device__ void for_each_tile(const Arguments& a, const Fn& fn) {
  const int tiles = a.row_tiles * a.pair_tiles, in_band = a.band * a.pair_tiles;
#pragma unroll 1
  for (int n = blockIdx.x; n < tiles; n += gridDim.x) {
    const int band = n / in_band, first = band * a.band;
    const int height = min(a.band, a.row_tiles - first), local = n - band * in_band;
    const int row_tile = first + local % height, column = local / height;
    const int pair_tile = band % 2 == 0 ? column : a.pair_tiles - 1 - column;
    fn(Tile{min(row_tile * kTileRows, a.rows - kTileRows),
            min(pair_tile * kTilePairs, a.pairs - kTilePairs)});
  }
}

/// The producer, by one thread.
__device__ void load(const Arguments& a, const Pipeline& pipeline) {
  PipelineState state;
  for_each_tile(a, [&](const Tile& tile) {
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
      wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      const uint32_t barrier = pipeline.full + 8 * state.stage;
      const uint32_t rows = pipeline.memory + state.stage * kStageBytes, gates = rows + kRowBytes,
                     ups = gates + kHalfWeightBytes;
      const bool is_more = k_tile >= a.of_x;
      const int input = (is_more ? k_tile - a.of_x : k_tile) * kSlab;
      const CUtensorMap& weights = is_more ? a.more_weights : a.weights;
      arrive_expect_tx(barrier, kStageBytes);
      copy_rows(rows, is_more ? a.more_x : a.x, input, tile.row, barrier);
      copy_rows(gates, weights, input, tile.pair, barrier);
      copy_rows(ups, weights, input, a.pairs + tile.pair, barrier);
      state.advance(1, kStages);
    }
  });
}

/// Named barrier of a consumer.
__device__ void sync_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

/// Main loop of a consumer warpgroup. Returns the index of the last stage, which the caller releases.
__device__ int multiply(const Arguments& a, const Pipeline& pipeline, PipelineState& state,
                        int group, float (&sum)[kSums]) {
  int last = 0;
#pragma unroll 1
  for (int i = 0; i < a.k_tiles; ++i) {
    wait(pipeline.full + 8 * state.stage, state.phase);
    const uint32_t stage = pipeline.memory + state.stage * kStageBytes;
    const uint64_t rows = matrix_descriptor(stage + 128 * kGroupRows * group);
    const uint64_t weights = matrix_descriptor(stage + kRowBytes);
    constexpr int kNextInputs = 32 >> 4;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSlab / 16; ++k)
      wgmma_256(sum, rows + kNextInputs * k, weights + kNextInputs * k, i > 0 || k > 0);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    if (i > 0 && threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    last = state.stage;
    state.advance(1, kStages);
  }
  wgmma_wait_group<0>();
  settle(sum);
  return last;
}

__device__ void add(float2& sums, const __nv_bfloat16* biases) {
  const float2 two = unpack<__nv_bfloat16>(*reinterpret_cast<const uint32_t*>(biases));
  sums.x += two.x;
  sums.y += two.y;
}

/// Epilogue. `results`: this consumer's, slabs of 64 pairs with the swizzle of TMA.
template <bool kHasBias>
__device__ void write_gated(const Arguments& a, uint32_t results, const Tile& tile, int group,
                            const float (&sum)[kSums]) {
  const bool stores = threadIdx.x % 128 == 0;
  if (stores) wait_for_read_stores();
  sync_group(group);
  const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
  const uint32_t lines = results + 128 * (16 * (threadIdx.x / 32 % 4) + 8 * (matrix % 2) + line);
  const int pair = tile.pair + 2 * (lane % 4);
#pragma unroll
  for (int j = 0; j < kTilePairs / 8; j += 2) {
    uint32_t words[4];  // rows r and r + 8 of eight pairs, then of the next eight
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int i = 4 * (j + n / 2) + 2 * (n % 2);
      float2 gate = make_float2(sum[i], sum[i + 1]);
      float2 up = make_float2(sum[kSums / 2 + i], sum[kSums / 2 + i + 1]);
      if constexpr (kHasBias) {
        const auto* biases = a.bias_2F + pair + 8 * (j + n / 2);
        add(gate, biases);
        add(up, biases + a.pairs);
      }
      words[n] = pack<__nv_bfloat16>(gated<__nv_bfloat16>(gate.x, up.x),
                                     gated<__nv_bfloat16>(gate.y, up.y));
    }
    const int piece = j % 8 + matrix / 2;
    store_matrices(lines + kResultSlabBytes * (j / 8) + 16 * (piece ^ line), words);
  }
  fence_async_shared();
  sync_group(group);
  if (!stores) return;
#pragma unroll
  for (int s = 0; s < kTilePairs / kSlab; ++s)
    store_rows(a.y, tile.pair + s * kSlab, tile.row + kGroupRows * group,
               results + kResultSlabBytes * s);
  commit_stores();
}

#endif

template <bool kHasBias>
__global__ void __launch_bounds__(kThreads, 1)
    gated_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ uint64_t full[kStages], empty[kStages];
  const Pipeline pipeline{shared_address(memory), shared_address(full), shared_address(empty),
                          kStages};
  if (threadIdx.x == kConsumers) {
    prefetch_map(a.x);
    prefetch_map(a.weights);
    prefetch_map(a.y);
    for (int i = 0; i < kStages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, kGroups);
    }
    fence_barrier_init();
  }
  launch_dependents();
  __syncthreads();
  grid_dependency_wait();
  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    decrease_registers<24>();
    if (threadIdx.x == kConsumers) {
      fence_async_global();
      load(a, pipeline);
    }
    return;
  }
  increase_registers<240>();
  const uint32_t results = pipeline.memory + kStages * kStageBytes + kResultBytes * group;
  float sum[kSums] = {};
  PipelineState state;
  for_each_tile(a, [&](const Tile& tile) {
    const int last = multiply(a, pipeline, state, group, sum);
    if (threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    write_gated<kHasBias>(a, results, tile, group, sum);
  });
  if (threadIdx.x % 128 == 0) wait_for_stores();
#endif
}

template <bool kHasBias>
void run(const GatedProduct& call, cudaStream_t stream) {
  constexpr auto kKernel = gated_product_kernel<kHasBias>;
  constexpr int kHighestBand = 16;
  Arguments a;
  a.x = row_map(call.x_TI, call.rows, call.inputs, kTileRows);
  a.weights = row_map(call.weight_2FI, 2 * call.units, call.inputs, kTilePairs);
  a.y = row_map(call.y_TF, call.rows, call.units, kGroupRows);
  a.bias_2F = static_cast<const __nv_bfloat16*>(call.bias_2F);
  a.rows = static_cast<int>(call.rows);
  a.pairs = static_cast<int>(call.units);
  a.of_x = static_cast<int>(call.inputs / kSlab);
  a.k_tiles = a.of_x + static_cast<int>(call.more_inputs / kSlab);
  if (call.more_inputs > 0) {
    a.more_x = row_map(call.more_TC, call.rows, call.more_inputs, kTileRows);
    a.more_weights = row_map(call.more_weight_2FC, 2 * call.units, call.more_inputs, kTilePairs);
  }
  a.row_tiles = divide_up(a.rows, kTileRows);
  a.pair_tiles = divide_up(a.pairs, kTilePairs);
  // Bands of about the same height.
  a.band = divide_up(a.row_tiles, divide_up(a.row_tiles, kHighestBand));
  const int blocks =
      std::clamp(num_processors() - call.processors_left, 1, a.row_tiles * a.pair_tiles);
  allow_shared_memory<kKernel>(kSharedBytes);
  launch(kKernel, dim3(blocks), dim3(kThreads), kSharedBytes, stream, a);
}

}  // namespace

bool has_gated_product(Number number, int64_t rows, int64_t inputs, int64_t units) {
  return number == Number::kBFloat16 && rows >= kFewestRows && rows <= INT_MAX / 2 &&
         inputs >= kSlab && inputs % kSlab == 0 && units >= kTilePairs && units % 8 == 0 &&
         2 * units <= INT_MAX / 2 && compute_capability_major() == 9;
}

void gated_product(const GatedProduct& call, cudaStream_t stream) {
  if (!has_gated_product(Number::kBFloat16, call.rows, call.inputs, call.units))
    throw std::runtime_error("no gated product of these sizes");
  call.bias_2F != nullptr ? run<true>(call, stream) : run<false>(call, stream);
}

}  // namespace slime::kernels::cuda
