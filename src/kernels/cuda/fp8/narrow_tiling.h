#pragma once

/// Tiling of narrow_product (kernels/cuda/fp8/products.h) over thread blocks, and its shared memory. Words
/// as in kernels/cuda/fp8/few_tiling.h; a stage is one or several slabs, which the four warpgroups take in
/// turns.

#include <algorithm>

#include "core/divide_up.h"
#include "kernels/cuda/fp8/few_tiling.h"

namespace slime::kernels::cuda::fp8::narrow {

inline constexpr int kMostRows = 2;
inline constexpr int kGroups = 4;
inline constexpr int kMostTiles = 3;
inline constexpr int kMostStages = 32;
inline constexpr int kStageBytes = 24 << 10;
inline constexpr int kSharedBytes = 200 << 10;
inline constexpr int kMostInputs = 100 << 10 >> 3;  // 1024 bytes of x for each 128

struct Tiling {
  bool is_pairs = false;
  int box = 0, blocks = 0;
  int splits = 1;     // split-K: blocks that share the inputs of a tile
  int slabs = 0;      // of all inputs
  int per_stage = 1;  // 1, 2, 4 or 8, which divides them; 1 where inputs are split

  constexpr int block_outputs() const { return is_pairs ? 2 * box : box; }
  constexpr int tiles() const { return divide_up(block_outputs(), kGroupOutputs); }
  /// Operands begin with whole groups of eight lines.
  constexpr int slab_bytes() const { return 128 * block_outputs(); }
  constexpr int begin_of(int split) const { return slabs * split / splits; }
  constexpr int most_slabs() const { return divide_up(slabs, splits); }
  /// From a stage of a warpgroup to its next.
  constexpr int turn() const { return std::max(1, kGroups / per_stage); }
  /// Stages that fit in shared memory beside x and the sums.
  constexpr int room() const {
    return (kSharedBytes - between() - sums()) / (per_stage * slab_bytes());
  }
  constexpr int sums() const { return 4 * kGroups * kGroupOutputs * tiles() * kMostRows; }
  constexpr int between() const {
    return std::max(1024 * most_slabs(), 128 * kGroupOutputs * tiles());
  }
};

/// Of all inputs: one wave of blocks, or several full waves.
constexpr Tiling whole_tiling(int inputs, int outputs, bool is_pairs, int processors) {
  const int units = is_pairs ? outputs / 2 : outputs;
  Tiling tiling;
  tiling.is_pairs = is_pairs;
  tiling.slabs = inputs / kSlabInputs;
  for (int waves = 1; tiling.box == 0 || tiling.tiles() > kMostTiles || tiling.room() < kGroups;
       ++waves)
    tiling.box = round_up(divide_up(units, waves * processors), is_pairs ? 4 : 8);
  tiling.blocks = divide_up(units, tiling.box);
  while (tiling.per_stage < 8 && 2 * tiling.per_stage * tiling.slab_bytes() <= kStageBytes &&
         tiling.slabs % (2 * tiling.per_stage) == 0)
    tiling.per_stage *= 2;
  return tiling;
}

/// As few_product splits: fewer slabs of x for each thread block to make codes of, and larger copies than
/// narrow boxes have.
constexpr Tiling split_tiling(int inputs, int outputs, int processors) {
  const fp8::Tiling of_few = fp8::split_tiling(inputs, outputs, processors);
  Tiling tiling;
  tiling.box = of_few.box;
  tiling.blocks = of_few.tiles;
  tiling.splits = of_few.splits;
  tiling.slabs = of_few.slabs;
  return tiling;
}

/// Stages; x, eight lines a slab, of which the first two are rows; sums [group, output, row] float32. The
/// last tiles multiply whatever lies behind the outputs.
struct Layout {
  int stages = 0, stage_stride = 0, stages_in_flight = 0;
  int x_begin = 0, sums_begin = 0;
  int bytes = 0;

  constexpr Layout() = default;
  constexpr explicit Layout(const Tiling& tiling) {
    stage_stride = tiling.per_stage * tiling.slab_bytes();
    const int all = divide_up(tiling.most_slabs(), tiling.per_stage);
    stages = std::min({tiling.room(), kMostStages, all});
    // A stage is always the same warpgroups': they wait for all phases of its barrier, in their order. One that
    // came to a phase before the phase before it would take that for its own.
    if (stages < all) stages -= stages % tiling.turn();
    const int in_flight = std::clamp(all * stage_stride / 2, 48 << 10, 72 << 10);
    stages_in_flight = std::clamp(in_flight / stage_stride, 1, stages);
    x_begin = stages * stage_stride;
    sums_begin = x_begin + tiling.between();
    bytes = std::max(sums_begin + tiling.sums(), kLeastSharedBytes);
  }
};

}  // namespace slime::kernels::cuda::fp8::narrow
