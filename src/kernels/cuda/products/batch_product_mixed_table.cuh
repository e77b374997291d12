#pragma once

/// Table of a batch's product whose rows take adapters of their own, one in each thread block: units of h, columns of
/// rows, and fragments of B, all numbered.
///
/// Tiles of rows are read before the kernels before have ended: a pass begins with a copy of its inputs, and behind a copy
/// nothing starts early (low_rank_ready.cuh).

#include "kernels/cuda/products/batch_product_epilogue.cuh"
#include "kernels/cuda/products/batch_product_mixed.h"
#include "kernels/cuda/products/low_rank_addition.cuh"

namespace slime::kernels::cuda::batch {

struct MixedArguments {
  Arguments product;
  MixedLayout layout;
};

/// In shared memory.
struct MixedTable {
  int slot_N[kMostMixedTiles];
  int row_N[kMostMixedTiles * LowRankRows::kRows];
  int units_N[kMostMixedTiles];
  int first_unit_N[kMostMixedTiles + 1];  // the last one: how many there are
  int adapter_N[kMostMixedTiles];         // number of the tile's adapter
  int tile_T[kMostMakingRows];            // of each row; -1: it takes no adapter
  int adapters;                           // that tiles take, neighbours counted once
  int slot_D[kMostMixedTiles];            // of each adapter
  int columns;                            // halves of tiles that have rows and an adapter
  int column_C[2 * kMostMixedTiles];
  int is_live_C[2 * kMostMixedTiles];
  // Of each adapter and each 16 of the thread block's outputs.
  int fragments_DM[kMostMixedTiles * kMostOutputTiles];
  int first_fragment_DM[kMostMixedTiles * kMostOutputTiles];
  int fragments_D[kMostMixedTiles];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Named barrier 3: all warps that make h.
__device__ inline void sync_mixed() {
  asm volatile("bar.sync 3, %0;" ::"r"(kMixedThreads) : "memory");
}

__device__ inline int output_tiles(const Arguments& a) {
  return divide_up(a.tiling.block_outputs(), kFragmentOutputs);
}

/// Whether outputs [from, to) of a thread block have some of the factor's.
__device__ inline bool meets(const Arguments& a, const LowRankFactor& factor, int from, int to) {
  const int box = a.tiling.box, base = blockIdx.x * box;
  const auto has = [&](int half, int begin, int end) {
    const int first = half * a.units + a.addition.first_output;
    begin = first + base + begin;
    end = first + min(base + end, a.units);
    return begin < end && factor.begin < end && factor.end > begin;
  };
  to = min(to, a.tiling.block_outputs());
  if (has(0, from, min(to, box))) return true;
  return a.tiling.is_pairs && has(1, max(from, box) - box, to - box);
}

/// visit(factor, first_chunk) of each factor that has some of 16 outputs, and where its ranks begin in h, in chunks of
/// kUnitRanks.
template <typename Visit>
__device__ inline void for_each_factor(const Arguments& a, int slot, int tile, const Visit& visit) {
  const LowRankFactors& factors = a.addition.by_row.table[slot];
  int chunk = 0;
  for (int which = 0; which < factors.count; ++which) {
    const LowRankFactor& factor = factors.of[which];
    if (meets(a, factor, kFragmentOutputs * tile, kFragmentOutputs * (tile + 1)))
      visit(factor, chunk);
    chunk += hidden_chunks(factor);
  }
}

/// The sum of numbers [0, end).
__device__ inline int sum_before(const int* numbers, int end) {
  int sum = 0;
#pragma unroll 4
  for (int i = 0; i < end; ++i) sum += numbers[i];
  return sum;
}

/// Tiles and units. By kMixedThreads, of which this is number `thread`.
__device__ inline void find_units(const Arguments& a, int thread, MixedTable& table) {
  const LowRankRows& by_row = a.addition.by_row;
  constexpr int kRows = LowRankRows::kRows, kOfColumn = kRows / 2;
  static_assert(2 * kMostMixedTiles <= kMixedThreads);
  if (thread < by_row.tiles) table.slot_N[thread] = load_past_l1(by_row.slot_N + thread);
  for (int n = thread; n < kRows * by_row.tiles; n += kMixedThreads)
    table.row_N[n] = load_past_l1(by_row.row_N + n);
  if (thread < kMostMakingRows) table.tile_T[thread] = -1;
  sync_mixed();
  const auto is_new = [&](int tile) {
    const int slot = table.slot_N[tile];
    return slot >= 0 && (tile == 0 || table.slot_N[tile - 1] != slot);
  };
  for (int n = thread; n < kRows * by_row.tiles; n += kMixedThreads)
    if (table.row_N[n] >= 0 && table.slot_N[n / kRows] >= 0)
      table.tile_T[table.row_N[n]] = n / kRows;
  if (thread < 2 * by_row.tiles) {
    bool has_rows = false;
    for (int i = 0; i < kOfColumn; ++i)
      has_rows = has_rows || table.row_N[kOfColumn * thread + i] >= 0;
    table.is_live_C[thread] = has_rows && table.slot_N[thread / 2] >= 0 ? 1 : 0;
  }
  if (thread < by_row.tiles) {
    const int slot = table.slot_N[thread];
    table.units_N[thread] =
        slot < 0 ? 0 : hidden_chunks(a.addition.down_table[slot]) * kHiddenShares;
  }
  sync_mixed();
  if (thread <= by_row.tiles) {
    table.first_unit_N[thread] = sum_before(table.units_N, thread);
    int adapters = 0;
    for (int tile = 0; tile < thread; ++tile) adapters += is_new(tile) ? 1 : 0;
    if (thread == by_row.tiles) {
      table.adapters = adapters;
    } else {
      const bool begins = is_new(thread);
      table.adapter_N[thread] = begins ? adapters : adapters - 1;
      if (begins) table.slot_D[adapters] = table.slot_N[thread];
    }
  }
  if (thread <= 2 * by_row.tiles) {
    const int before = sum_before(table.is_live_C, thread);
    if (thread == 2 * by_row.tiles) {
      table.columns = before;
    } else if (table.is_live_C[thread] != 0) {
      table.column_C[before] = thread;
    }
  }
  sync_mixed();
}

/// Fragments of what a thread block adds.
__device__ inline void find_fragments(const Arguments& a, int thread, MixedTable& table) {
  const int tiles = output_tiles(a), pairs = table.adapters * tiles;
  for (int n = thread; n < pairs; n += kMixedThreads) {
    int fragments = 0;
    for_each_factor(a, table.slot_D[n / tiles], n % tiles, [&](const LowRankFactor& factor, int) {
      fragments += divide_up(factor.rank, kRanksOfStep);
    });
    table.fragments_DM[n] = fragments;
  }
  sync_mixed();
  if (thread < table.adapters)
    table.fragments_D[thread] = sum_before(table.fragments_DM + thread * tiles, tiles);
  sync_mixed();
  for (int n = thread; n < pairs; n += kMixedThreads)
    table.first_fragment_DM[n] = sum_before(table.fragments_D, n / tiles) +
                                 sum_before(table.fragments_DM + n / tiles * tiles, n % tiles);
  sync_mixed();
}

#endif

}  // namespace slime::kernels::cuda::batch
