#pragma once

/// Shared memory and units of a batch's product whose rows take adapters of their own (batch_product_mixed.cuh). Plain
/// integers: tests on machines without a GPU see this file.

#include <algorithm>

#include "kernels/cuda/products/batch_product_hidden.h"
#include "kernels/cuda/products/batch_product_tiling.h"

namespace slime::kernels::cuda::batch {

/// Groups of kShareThreads, each of which makes units of its own.
inline constexpr int kMixedGroups = 3, kMixedThreads = kMixedGroups * kShareThreads;
/// Tiles of rows that take one adapter: as many as rows, and some that are empty.
inline constexpr int kMostMixedTiles = 40;
/// A fragment of B: 16 outputs by 16 ranks of 16 bits.
inline constexpr int kFragmentOutputs = 16, kFragmentBytes = 512;
inline constexpr int kMostOutputTiles = kMostGroups * kGroupOutputs / kFragmentOutputs;
/// Of all adapters together: chunks of kUnitRanks ranks, and factors, each of 32 ranks or what room they take.
inline constexpr int kMostMixedChunks = 512, kMostMixedFactors = kMostMixedChunks * kUnitRanks / 32;
/// Of a thread block. It leaves room for the small kernels between two products.
inline constexpr int kMixedSharedBytes = 208 << 10;
/// Of the pipeline's, what fragments may take where they need it.
inline constexpr int kMostTakenBytes = 44 << 10;
inline constexpr int kMostFragments = kMixedSharedBytes / kFragmentBytes;
/// Fragments that a warp has in flight.
inline constexpr int kFragmentsAtOnce = 3;
/// Of what thread blocks know of rows and adapters, beside kMixedSharedBytes.
inline constexpr int kMixedTableBytes = 8832;

/// Fours of ranks of a row of h, and of a line of it in shared memory: of each two words of 16 bits twice.
/// `most_chunks`: LowRankRows::most_chunks.
constexpr int mixed_fours(int most_chunks) { return 8 * most_chunks; }
constexpr int mixed_pitch(int most_chunks) { return mixed_fours(most_chunks) + 1; }
constexpr int mixed_hidden_bytes(int rows, int most_chunks) {
  return round_up(std::max(16 * rows * mixed_pitch(most_chunks), kMixedGroups * hidden_bytes(1, 1)),
                  128);
}

/// Units of a tile at most, and numbers of all units in memory: float32 [chunk, share, row, rank], of each row's adapter.
constexpr int mixed_units(int most_chunks) {
  return divide_up(32, kUnitRanks) * most_chunks * kHiddenShares;
}
constexpr int mixed_numbers(int rows, int most_chunks) {
  return mixed_units(most_chunks) * rows * kUnitRanks;
}

/// Outputs of thread block `block` that are of [factor_begin, factor_end): [begin, end) of its units, of half 1 as ups.
struct OutputRange {
  int begin = 0, end = 0;
  int from = 0;  // `begin`, counted from the factor's first

  constexpr OutputRange(const Tiling& tiling, int units, int first_output, int block,
                        int factor_begin, int factor_end, int half) {
    const int first = half * units + first_output, base = block * tiling.box;
    const bool is_there = half == 0 || tiling.is_pairs;
    begin = std::max(factor_begin - first, base) - base;
    end = is_there ? std::min({factor_end - first, base + tiling.box, units}) - base : 0;
    from = first + base + begin - factor_begin;
  }
  constexpr bool is_empty() const { return begin >= end; }
};

/// Bit t: some of a thread block's outputs [16 t, 16 t + 16) are of [factor_begin, factor_end).
constexpr unsigned tiles_of_factor(const Tiling& tiling, int units, int first_output, int block,
                                   int factor_begin, int factor_end) {
  unsigned tiles = 0;
  for (int half = 0; half < 2; ++half) {
    const OutputRange range(tiling, units, first_output, block, factor_begin, factor_end, half);
    if (range.is_empty()) continue;
    const int first = (half * tiling.box + range.begin) / kFragmentOutputs,
              last = (half * tiling.box + range.end - 1) / kFragmentOutputs;
    tiles |= (2U << last) - (1U << first);
  }
  return tiles;
}

struct MixedLayout {
  SharedLayout shared;
  int hidden_begin = 0, fragments_begin = 0;
  int fragments = 0;  // that there is room for: others are read from memory

  constexpr MixedLayout() = default;
  constexpr MixedLayout(const Tiling& tiling, int rows, int rows_there, int processors, int tiles,
                        int most_chunks) {
    const int of_hidden = mixed_hidden_bytes(rows_there, most_chunks);
    const int output_tiles = divide_up(tiling.block_outputs(), kFragmentOutputs);
    const int most = output_tiles * 2 * most_chunks * tiles;
    const int taken = std::clamp(most * kFragmentBytes - (kMixedSharedBytes - kPipelineBytes), 0,
                                 kMostTakenBytes);
    shared = SharedLayout(tiling, rows, rows_there, processors, of_hidden + taken);
    // The accumulators overlay the stages while both are read.
    hidden_begin =
        std::max(shared.hidden_begin, round_up(SharedLayout::sums_bytes(tiling, rows), 128));
    fragments_begin = hidden_begin + of_hidden;
    fragments = std::min(most, (kMixedSharedBytes - fragments_begin) / kFragmentBytes);
    shared.bytes = std::max(shared.bytes, fragments_begin + fragments * kFragmentBytes);
  }
};

}  // namespace slime::kernels::cuda::batch
