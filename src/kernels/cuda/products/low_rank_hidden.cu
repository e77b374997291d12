#include "kernels/cuda/products/low_rank_hidden.h"

#include <cooperative_groups.h>

#include <stdexcept>

#include "core/divide_up.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/products/low_rank_addition.cuh"
#include "kernels/cuda/products/low_rank_ready.cuh"

namespace slime::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kCluster = kHiddenShares;  // thread blocks that share the inputs
constexpr int kWarps = kHiddenChains, kThreads = 32 * kWarps;
constexpr int kRanks = 16;  // of a cluster: two fragments
constexpr int kStepInputs = kHiddenStep;
/// Steps of a warp whose factors are in flight; fewer where rows need the registers.
constexpr int ahead(int row_tiles) { return row_tiles > 1 ? 2 : 4; }
constexpr unsigned kAllShared = 100;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A cluster's rows: neighbours, or those of a tile.
template <int kRowTiles, bool kByRow>
struct ClusterRows {
  const LowRankHidden& call;

  __device__ int index() const { return static_cast<int>(blockIdx.x) / kCluster; }
  /// -1: there is none.
  __device__ int operator[](int i) const {
    const int n = index() * 16 * kRowTiles + i;
    if constexpr (kByRow) return call.by_row.row_N[n];
    return n < call.rows ? n : -1;
  }
  /// Null: the rows take none.
  __device__ const LowRankFactors* factors() const {
    if constexpr (!kByRow) return &call.factors;
    const int slot = call.by_row.slot_N[index()];
    return slot < 0 ? nullptr : call.by_row.table + slot;
  }
};

/// Four inputs of a row.
__device__ inline uint2 four_inputs(const LowRankHidden& call, int row, int input) {
  const int64_t four = (static_cast<int64_t>(row) * call.inputs + input) / 4;
  return load_past_l1_if(row >= 0, static_cast<const uint2*>(call.x_TI) + four);
}

#endif

/// A cluster: 16 kRowTiles rows and 16 ranks of one factor. Its thread blocks take a range of the inputs each, and
/// their warps every eighth step of 16 of it. All sums have one order whatever the rows.
template <int kRowTiles, bool kByRow>
__global__ void SLIME_CLUSTER_OF(kCluster) __launch_bounds__(kThreads)
    hidden_kernel(const __grid_constant__ LowRankHidden call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kRows = 16 * kRowTiles, kAhead = ahead(kRowTiles);
  __shared__ float of_warps[kWarps][kRows][kRanks + 1];
  __shared__ float of_block[kRows * kRanks];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int group = lane / 4, quarter = lane % 4;
  const ClusterRows<kRowTiles, kByRow> rows{call};
  const cg::cluster_group cluster = cg::this_cluster();
  const int share = static_cast<int>(cluster.block_rank());
  launch_dependents();
  if constexpr (kByRow) grid_dependency_wait();  // the tiles are the step's
  const LowRankFactors* const factors = rows.factors();
  if (factors == nullptr) return;
  int which = 0, first_rank = blockIdx.y * kRanks;
  while (which < factors->count && first_rank >= round_up(factors->of[which].rank, kRanks)) {
    first_rank -= round_up(factors->of[which].rank, kRanks);
    ++which;
  }
  if (which == factors->count) return;  // others have more pairs
  const LowRankFactor& factor = factors->of[which];
  const int steps = call.inputs / kStepInputs, end = steps * (share + 1) / kCluster;
  int step = steps * share / kCluster + warp;

  float4 a[kAhead][2];
  const auto load_factor = [&] {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int rank = first_rank + 8 * half + group, at = step + kWarps * i;
        a[i][half] =
            load_read_only_if(rank < factor.rank && at < end,
                              factor.values + rank * factor.pitch + kStepInputs * at + 4 * quarter);
      }
    }
  };
  load_factor();
  // The others wait in the second-level cache.
  for (int at = step + kWarps * kAhead; at < end && quarter == 0; at += kWarps) {
#pragma unroll
    for (int rank = first_rank + group; rank < first_rank + kRanks; rank += 8)
      if (rank < factor.rank)
        prefetch_to_l2(factor.values + rank * factor.pitch + kStepInputs * at);
  }
  if constexpr (!kByRow) {
    grid_dependency_wait();
    if (call.ready != nullptr && blockIdx.x == 0 && blockIdx.y == 0 && thread == 0)
      announce_x(call.ready);
  }
  int row_of_lane[kRowTiles][2];
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
    row_of_lane[tile][0] = rows[16 * tile + group];
    row_of_lane[tile][1] = rows[16 * tile + group + 8];
  }
  float sum[kRowTiles][2][4] = {};
  for (; step < end; step += kWarps * kAhead) {
    uint2 x[kAhead][kRowTiles][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = step + kWarps * i;
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          x[i][tile][half] = four_inputs(call, at < end ? row_of_lane[tile][half] : -1,
                                         kStepInputs * at + 4 * quarter);
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const FourRanks b = packed(a[i][half]);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile)
          multiply<BFloat16>(sum[tile][half], x[i][tile][0].x, x[i][tile][1].x, x[i][tile][0].y,
                             x[i][tile][1].y, b.low, b.high);
      }
    }
    const int next = step + kWarps * kAhead;
    if (next < end) {
      step = next;
      load_factor();
      step -= kWarps * kAhead;
    }
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        of_warps[warp][16 * tile + group + i / 2 * 8][8 * half + 2 * quarter + i % 2] =
            sum[tile][half][i];
    }
  }
  __syncthreads();
  for (int n = thread; n < kRows * kRanks; n += kThreads) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += of_warps[w][n / kRanks][n % kRanks];
    of_block[n] = total;
  }
  cluster.sync();
  constexpr int kOfShare = kRows * kRanks / kCluster;
  if (thread < kOfShare) {
    const int n = kOfShare * share + thread, row = rows[n / kRanks], rank = first_rank + n % kRanks;
    float total = 0;
#pragma unroll
    for (int from = 0; from < kCluster; ++from)
      total += *cluster.map_shared_rank(of_block + n, from);
    if (row >= 0 && rank < factor.rank)
      call.h_TR[static_cast<int64_t>(row) * call.h_pitch + factor.column + rank] =
          factor.scale * total;
  }
  cluster.sync();  // others still read this block's sums
#endif
}

template <int kRowTiles, bool kByRow>
void run(const LowRankHidden& call, int row_blocks, Stream stream) {
  int chunks = call.by_row.most_chunks * (32 / kRanks);  // of LowRankFactors::chunks()
  if constexpr (!kByRow)
    for (int i = 0; i < call.factors.count; ++i)
      chunks += divide_up(call.factors.of[i].rank, kRanks);
  launch(static_cast<SharedShare>(kAllShared), hidden_kernel<kRowTiles, kByRow>,
         dim3(static_cast<unsigned>(kCluster * row_blocks), static_cast<unsigned>(chunks)),
         dim3(kThreads), 0, stream, call);
}

}  // namespace

bool has_low_rank_hidden(Number number) {
  return number == Number::kBFloat16 && compute_capability_major() == 9;
}

void low_rank_hidden(const LowRankHidden& call, Stream stream) {
  if (!has_low_rank_hidden(Number::kBFloat16) || call.inputs % kLowRankHiddenInputs != 0)
    throw std::runtime_error("no way down of " + std::to_string(call.rows) + " rows of " +
                             std::to_string(call.inputs) + " inputs");
  const int tiles = call.by_row.tiles;
  if (tiles > 0) return run<1, true>(call, tiles, stream);
  if (call.rows <= 16) return run<1, false>(call, 1, stream);
  if (call.rows <= 32) return run<2, false>(call, 1, stream);
  run<4, false>(call, (call.rows + 63) / 64, stream);
}

}  // namespace slime::kernels::cuda
