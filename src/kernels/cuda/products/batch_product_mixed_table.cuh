#pragma once

/// Table of a batch's product whose rows take adapters of their own, one in each thread block: units of h, columns of
/// rows, and fragments of B, all numbered.
///
/// It is on the way to the first number of A, so memory is asked twice: for the tiles, then for all factors of all
/// adapters at once. What follows is in registers and shared memory, by the lanes of a warp side by side.
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

/// A pair of factors of an adapter. A has the matrix's inputs of each rank, and nothing between them.
struct MixedFactor {
  const float *a = nullptr, *b = nullptr;
  int pitch = 0;           // of B
  int begin = 0, end = 0;  // outputs
  int rank = 0;
  float scale = 1;
  int first_chunk = 0;     // in the adapter's h
  unsigned tiles = 0;      // bit t: the thread block adds to some of outputs [16 t, 16 t + 16)
  int first_fragment = 0;  // [tile of those, step of ranks]

  __device__ int steps() const { return divide_up(rank, kRanksOfStep); }
  __device__ bool has(int tile) const { return (tiles >> tile & 1) != 0; }
  /// The first one of a tile that it has.
  __device__ int fragment(int tile) const {
    return first_fragment + __popc(tiles & ((1U << tile) - 1)) * steps();
  }
};

/// In shared memory. Factors F are those of adapter 0, then those of the next; C are all chunks of h likewise.
struct MixedTable {
  MixedFactor of_F[kMostMixedFactors];
  alignas(8) int8_t row_N[kMostMixedTiles * LowRankRows::kRows];
  int8_t adapter_N[kMostMixedTiles];      // number of the tile's adapter; -1: it has none
  int8_t adapter_T[kMostMakingRows];      // of each row likewise
  uint8_t column_L[2 * kMostMixedTiles];  // halves of tiles that have rows and an adapter
  uint8_t factor_C[kMostMixedChunks];
  uint16_t place_B[kMostFragments];  // of each fragment: 16 times its factor, plus its tile
  int slot_D[kMostMixedTiles];       // of each adapter
  int16_t first_factor_D[kMostMixedTiles + 1], first_chunk_D[kMostMixedTiles + 1];
  int16_t end_unit_N[64];          // of each tile; behind the last one: how many there are
  int first_unit_G[kMixedGroups];  // of each group: its others are all_groups() apart
  unsigned counts_W[kMixedThreads / 32];
  int adapters;  // that tiles take, neighbours counted once
  int columns;
  int fragments;
  int flags;  // that thread blocks have set, and the one that counts them
};
static_assert(sizeof(MixedTable) <= kMixedTableBytes);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

static_assert(kMostHiddenFlags <= kMostMixedChunks * kHiddenShares);
static_assert(kMostMixedFactors <= 1 << 7 && kMostOutputTiles <= 16);
static_assert(kMostLowRankFactors * (kMostMixedTiles + 1) <= kMixedThreads);
static_assert(kMostMixedTiles <= 64);  // two to a lane

/// Named barrier 3: all warps that make h.
__device__ inline void sync_mixed() {
  asm volatile("bar.sync 3, %0;" ::"r"(kMixedThreads) : "memory");
}

__device__ inline int output_tiles(const Arguments& a) {
  return divide_up(a.tiling.block_outputs(), kFragmentOutputs);
}

/// Loads that the compiler leaves in front of the branch behind which they are used, so that all are in flight at once.
__device__ inline int load_now(const int* from) {
  int x;
  asm volatile("ld.global.cg.b32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
__device__ inline int64_t load_now(const void* from) {
  int64_t x;
  asm volatile("ld.global.cg.b64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
  return x;
}

/// Tiles, adapters and rows. By kMixedThreads, of which this is number `thread`.
__device__ inline void find_rows(const Arguments& a, int thread, MixedTable& table) {
  const LowRankRows& by_row = a.addition.by_row;
  constexpr int kRows = LowRankRows::kRows, kColumn = 8;
  const int lane = thread % 32;
  const unsigned below = (1U << lane) - 1;
  if (thread < 32) {
    int slot[2];
    bool is_new[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tile = 2 * lane + i;
      slot[i] = load_now(by_row.slot_N + min(tile, by_row.tiles - 1));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (2 * lane + i >= by_row.tiles) slot[i] = -1;
    const int before = shuffle_up(slot[1], 1);
    is_new[0] = slot[0] >= 0 && (lane == 0 || before != slot[0]);
    is_new[1] = slot[1] >= 0 && slot[1] != slot[0];
    const unsigned new_ones[2] = {ballot(is_new[0]), ballot(is_new[1])};
    int number = __popc(new_ones[0] & below) + __popc(new_ones[1] & below);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (is_new[i]) table.slot_D[number++] = slot[i];
      if (2 * lane + i < by_row.tiles)
        table.adapter_N[2 * lane + i] = static_cast<int8_t>(slot[i] < 0 ? -1 : number - 1);
    }
    if (lane == 0) table.adapters = __popc(new_ones[0]) + __popc(new_ones[1]);
  } else {
    for (int n = thread - 32; n < kRows * by_row.tiles; n += kMixedThreads - 32)
      table.row_N[n] = static_cast<int8_t>(load_now(by_row.row_N + n));
    if (thread < 32 + kMostMakingRows) table.adapter_T[thread - 32] = -1;
  }
  sync_mixed();
  for (int n = thread; n < kRows * by_row.tiles; n += kMixedThreads)
    if (table.row_N[n] >= 0) table.adapter_T[table.row_N[n]] = table.adapter_N[n / kRows];
  if (thread < kMixedThreads - 32) return;
  int columns = 0;
  for (int begin = 0; begin < 2 * by_row.tiles; begin += 32) {
    const int column = begin + lane;
    const bool is_live =
        column < 2 * by_row.tiles && table.adapter_N[column / 2] >= 0 &&
        *reinterpret_cast<const int64_t*>(table.row_N + kColumn * column) != int64_t{-1};
    const unsigned live = ballot(is_live);
    if (is_live) table.column_L[columns + __popc(live & below)] = static_cast<uint8_t>(column);
    columns += __popc(live);
  }
  if (lane == 0) table.columns = columns;
}

/// Three numbers in one, so that a warp adds them up together.
struct MixedCounts {
  static constexpr int kChunks = 8, kFragments = 18;  // bits below them

  unsigned all = 0;

  __device__ static MixedCounts of(int chunks, int fragments) {
    return {1U | static_cast<unsigned>(chunks) << kChunks |
            static_cast<unsigned>(fragments) << kFragments};
  }
  __device__ int factors() const { return static_cast<int>(all & 255); }
  __device__ int chunks() const { return static_cast<int>(all >> kChunks & 1023); }
  __device__ int fragments() const { return static_cast<int>(all >> kFragments); }
};

/// Factors, chunks and fragments, eight threads to an adapter. `adds`: whether the thread block adds to outputs. Ends with
/// sync_mixed().
__device__ inline void find_factors(const Arguments& a, int thread, bool adds, MixedTable& table) {
  const int d = thread / kMostLowRankFactors, which = thread % kMostLowRankFactors;
  const int lane = thread % 32, warp = thread / 32;
  MixedFactor factor;
  MixedCounts own;
  if (d < table.adapters) {
    const int slot = table.slot_D[d];
    const LowRankFactor &down = a.addition.down_table[slot].of[which],
                        &up = a.addition.by_row.table[slot].of[which];
    const int count = load_now(&a.addition.down_table[slot].count);
    factor.rank = load_now(&down.rank);
    factor.a = reinterpret_cast<const float*>(load_now(static_cast<const void*>(&down.values)));
    factor.b = reinterpret_cast<const float*>(load_now(static_cast<const void*>(&up.values)));
    factor.scale = __int_as_float(load_now(reinterpret_cast<const int*>(&down.scale)));
    factor.pitch = static_cast<int>(load_now(static_cast<const void*>(&up.pitch)));
    factor.begin = load_now(&up.begin);
    factor.end = load_now(&up.end);
    if (which < count && factor.rank > 0) {
      if (adds)
        factor.tiles = tiles_of_factor(a.tiling, a.units, a.addition.first_output, blockIdx.x,
                                       factor.begin, factor.end);
      own = MixedCounts::of(divide_up(factor.rank, kUnitRanks),
                            __popc(factor.tiles) * factor.steps());
    }
  }
  MixedCounts to_here = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned more = shuffle_up(to_here.all, distance);
    if (lane >= distance) to_here.all += more;
  }
  if (lane == 31) table.counts_W[warp] = to_here.all;
  sync_mixed();
  MixedCounts before{to_here.all - own.all};
#pragma unroll
  for (int w = 0; w < kMixedThreads / 32; ++w)
    if (w < warp) before.all += table.counts_W[w];
  const int of_adapter = shuffle(before.chunks(), lane / kMostLowRankFactors * kMostLowRankFactors);
  if (which == 0 && d <= table.adapters) {
    table.first_factor_D[d] = static_cast<int16_t>(before.factors());
    table.first_chunk_D[d] = static_cast<int16_t>(before.chunks());
    if (d == table.adapters) table.fragments = before.fragments();
  }
  if (own.all != 0) {
    factor.first_chunk = before.chunks() - of_adapter;
    factor.first_fragment = before.fragments();
    table.of_F[before.factors()] = factor;
    for (int i = 0; i < own.chunks(); ++i)
      table.factor_C[before.chunks() + i] = static_cast<uint8_t>(before.factors());
    int fragment = before.fragments();
    for (int tile = 0; factor.tiles >> tile != 0; ++tile) {
      if (!factor.has(tile)) continue;
      for (int i = 0; i < factor.steps(); ++i, ++fragment)
        if (fragment < kMostFragments)
          table.place_B[fragment] = static_cast<uint16_t>(16 * before.factors() + tile);
    }
  }
  sync_mixed();
}

/// Groups of all thread blocks.
__device__ inline int all_groups() {
  return kMixedGroups * static_cast<int>(gridDim.x * gridDim.y);
}

/// Which unit a group begins with. Thread blocks of other splits than the first, which stage nothing, make the first ones.
__device__ inline int first_unit_of(int group) {
  const int x = static_cast<int>(blockIdx.x), tiles = static_cast<int>(gridDim.x),
            splits = static_cast<int>(gridDim.y), split = static_cast<int>(blockIdx.y);
  const int others = tiles * (splits - 1);
  return x + (split == 0 ? kMixedGroups * others + group * tiles
                         : group * others + (split - 1) * tiles);
}

/// How units are numbered: those of tile 0, then those of the next. By one warp, a lane two tiles; others see it behind
/// sync_mixed().
__device__ inline void count_units(const Arguments& a, MixedTable& table) {
  const int lane = threadIdx.x % 32;
  if (lane < kMixedGroups) table.first_unit_G[lane] = first_unit_of(lane);
  int units[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int tile = 2 * lane + i, d = tile < a.addition.by_row.tiles ? table.adapter_N[tile] : -1;
    units[i] = d < 0 ? 0 : (table.first_chunk_D[d + 1] - table.first_chunk_D[d]) * kHiddenShares;
  }
  int to_here = units[0] + units[1];
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int more = shuffle_up(to_here, distance);
    if (lane >= distance) to_here += more;
  }
  table.end_unit_N[2 * lane] = static_cast<int16_t>(to_here - units[1]);
  table.end_unit_N[2 * lane + 1] = static_cast<int16_t>(to_here);
}

/// The tile of a unit, by all lanes of a warp.
__device__ inline int tile_of_unit(const MixedTable& table, int index) {
  const int lane = threadIdx.x % 32;
  return __popc(ballot(table.end_unit_N[lane] <= index)) +
         __popc(ballot(table.end_unit_N[32 + lane] <= index));
}

#endif

}  // namespace slime::kernels::cuda::batch
