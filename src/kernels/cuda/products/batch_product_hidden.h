#pragma once

/// Units of h = scale * x A^T that the thread blocks of a batch's product make (kernels/cuda/products/batch_product_share.cuh):
/// how many there are, and their memory. Plain integers, for host and device.

#include <algorithm>

#include "core/divide_up.h"
#include "kernels/cuda/products/low_rank.h"
#include "kernels/cuda/products/low_rank_hidden.h"

namespace slime::kernels::cuda::batch {

/// Warps of a thread block that do nothing else.
inline constexpr int kShareWarps = 4, kShareThreads = 32 * kShareWarps;
/// Of a unit: N and M of the instruction that multiplies A and x.
inline constexpr int kUnitRanks = 8, kUnitRows = 16;
/// Rows for which consumers have registers for factors, and h room in shared memory.
inline constexpr int kMostMakingRows = 32;
inline constexpr int kMostHiddenBytes = 32 << 10;

constexpr int hidden_row_tiles(int rows) { return divide_up(rows, kUnitRows); }
constexpr int hidden_chunks(int rank) { return divide_up(rank, kUnitRanks); }
constexpr int hidden_chunks(const LowRankFactor& factor) { return hidden_chunks(factor.rank); }
constexpr int hidden_chunks(const LowRankFactors& factors) {
  int chunks = 0;
  for (int i = 0; i < factors.count; ++i) chunks += hidden_chunks(factors.of[i]);
  return chunks;
}
constexpr int hidden_units(const LowRankFactors& factors, int rows) {
  return hidden_chunks(factors) * hidden_row_tiles(rows) * kHiddenShares;
}
/// Numbers of all units in memory: float32 [chunk, share, row, rank].
constexpr int hidden_numbers(const LowRankFactors& factors, int rows) {
  return hidden_chunks(factors) * kHiddenShares * rows * kUnitRanks;
}

/// Flags (LowRankAddition::flags): of the first one thread blocks count down which have done with the others.
inline constexpr int kFirstHiddenFlag = 1;

/// Shared memory of h of all rows, `pitch` floats each, or before it of the sums of a unit's chains.
constexpr int hidden_bytes(int rows, int pitch) {
  constexpr int kOfChains = 4 * kHiddenChains * kUnitRows * (kUnitRanks + 1);
  return round_up(std::max(4 * rows * pitch, kOfChains), 128);
}

}  // namespace slime::kernels::cuda::batch
