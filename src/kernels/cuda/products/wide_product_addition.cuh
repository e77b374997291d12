#pragma once

/// The addition of adapters to the accumulators of a wide product, whose rows are M and outputs N.
///
/// Factors of 32 ranks at a time pass through the shared memory of the last stage, as 16 bits [output, rank].

#include "kernels/cuda/products/low_rank_addition.cuh"
#include "kernels/cuda/products/wide_product_tiling.h"

namespace slime::kernels::cuda::wide {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

inline constexpr int kStagedRanks = 32;
/// Words of a line: what eight lanes read at once lies in different banks.
inline constexpr int kStagedPitch = kStagedRanks / 2 + 4;

/// The matrix's output in a column of a tile; -1: there is none.
template <int kOutputs, bool kPairs>
__device__ inline int output_of(int units, int tile, int column) {
  if constexpr (!kPairs) {
    const int output = tile * kOutputs + column;
    return output < units ? output : -1;
  }
  // Of eight columns four are gates and four the ups of the same pairs.
  const int pair = tile * (kOutputs / 2) + column / 8 * 4 + column % 4;
  return pair < units ? pair + (column % 8 < 4 ? 0 : units) : -1;
}

/// Ranks [first, first + 32) of the factor for the columns of a tile.
template <int kOutputs, bool kPairs>
__device__ inline void stage_factor(const LowRankFactor& factor, int units, int tile, int first,
                                    int threads, uint32_t* staged) {
  constexpr int kFours = kStagedRanks / 4, kAtOnce = 2;
  for (int begin = threadIdx.x; begin < kOutputs * kFours; begin += kAtOnce * threads) {
    FourRanks ranks[kAtOnce];
    load_outputs<kAtOnce>(
        factor,
        [&](int i) {
          const int column = (begin + i * threads) / kFours;
          return column < kOutputs ? output_of<kOutputs, kPairs>(units, tile, column) : -1;
        },
        [&](int i) { return first + (begin + i * threads) % kFours * 4; }, ranks);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int n = begin + i * threads;
      if (n < kOutputs * kFours)
        *reinterpret_cast<uint2*>(staged + n / kFours * kStagedPitch + n % kFours * 2) =
            make_uint2(ranks[i].low, ranks[i].high);
    }
  }
}

/// Whether a range of outputs has columns of the tile.
template <int kOutputs, bool kPairs>
__device__ inline bool has_columns(const LowRankFactor& factor, int units, int tile) {
  constexpr int kUnits = kPairs ? kOutputs / 2 : kOutputs;
  const int begin = tile * kUnits, end = begin + kUnits;
  const auto meets = [&](int from, int to) { return factor.begin < to && factor.end > from; };
  return meets(begin, end) || (kPairs && meets(begin + units, end + units));
}

/// Of rows that all take one adapter. `row_of(t)`: of a thread's first accumulators of row tile t, the others are eight rows further. Called by all
/// consumers, which have read the last stage.
template <int kOutputs, bool kPairs, int kTiles, typename RowOf>
__device__ inline void add_adapters(const LowRankAddition& call, int rows, int units, int tile,
                                    int threads, uint32_t* staged, const RowOf& row_of,
                                    float (&sum)[kTiles][kOutputs / 2]) {
  const int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
  for (int which = 0; which < call.factors.count; ++which) {
    const LowRankFactor& factor = call.factors.of[which];
    if (!has_columns<kOutputs, kPairs>(factor, units, tile)) continue;
    for (int first = 0; first < factor.rank; first += kStagedRanks) {
      sync_consumers(threads);  // nobody still reads what was staged before
      stage_factor<kOutputs, kPairs>(factor, units, tile, first, threads, staged);
      sync_consumers(threads);
#pragma unroll 1
      for (int step = first; step < min(first + kStagedRanks, factor.rank); step += kRanksOfStep) {
        FourRanks high[kTiles][2], low[kTiles][2];
        float4 h[kTiles][2];
        load_rows<2 * kTiles>(
            call, factor, rows, step + 4 * quarter,
            [&](int i) { return row_of(i / 2) + 8 * (i % 2); },
            reinterpret_cast<float4(&)[2 * kTiles]>(h));
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            high[t][half] = packed(h[t][half]);
            low[t][half] = packed(rest_of(h[t][half]));
          }
        }
        const uint32_t* line = staged + group * kStagedPitch + (step - first) / 2 + 2 * quarter;
#pragma unroll
        for (int j = 0; j < kOutputs / 8; ++j) {
          const uint2 b = *reinterpret_cast<const uint2*>(line + 8 * j * kStagedPitch);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            float(&of)[4] = *reinterpret_cast<float(*)[4]>(&sum[t][4 * j]);
            multiply<BFloat16>(of, high[t][0].low, high[t][1].low, high[t][0].high, high[t][1].high,
                               b.x, b.y);
            multiply<BFloat16>(of, low[t][0].low, low[t][1].low, low[t][0].high, low[t][1].high,
                               b.x, b.y);
          }
        }
      }
    }
  }
}

#endif

}  // namespace slime::kernels::cuda::wide
