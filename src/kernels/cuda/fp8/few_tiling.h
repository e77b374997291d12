#pragma once

/// Tiling of few_product (kernels/cuda/fp8/products.h) over thread blocks, and its shared memory. Plain
/// integers: tests on machines without a GPU see this file. Words as in
/// kernels/cuda/products/batch_product_tiling.h, but a slab is 128 inputs, a block of factors, and a
/// stage of the pipeline is one slab.

#include <algorithm>

#include "core/divide_up.h"

namespace slime::kernels::cuda::fp8 {

inline constexpr int kSlabInputs = 128;
inline constexpr int kGroupOutputs = 64;  // M of a wgmma instruction
inline constexpr int kMostFewRows = 128;
inline constexpr int kMostGroups = 4;  // warpgroups of consumers
/// Of more than 64 rows a thread has so many sums that three have the registers.
constexpr int most_groups(int rows) { return rows <= 64 ? kMostGroups : 3; }
inline constexpr int kMostGroupTiles = 3;
inline constexpr int kMostStages = 16;
inline constexpr int kMostSplits = 8;
inline constexpr int kPipelineBytes = 160 << 10;
/// More than half of a multiprocessor's: an occupancy of one (batch_product_tiling.h says why).
inline constexpr int kLeastSharedBytes = 132 << 10;
inline constexpr int kHalfPipelineBytes = 104 << 10;  // with more blocks than multiprocessors

struct Tiling {
  bool is_pairs = false;  // outputs are gates, then as many ups
  int box = 0;            // units of a block: rows of the weights' TMA box
  int tiles = 0;          // blocks that cover all outputs
  int splits = 1;         // split-K: blocks that share the inputs of a tile
  int slabs = 0;          // of all inputs
  int most_groups = kMostGroups;

  constexpr int block_outputs() const { return is_pairs ? 2 * box : box; }
  /// Of 64 outputs, one warpgroup each.
  constexpr int group_tiles() const { return divide_up(block_outputs(), kGroupOutputs); }
  /// Warpgroups that take turns with the slabs of a tile: a short product is bound by how fast the slabs
  /// that came before x are multiplied.
  constexpr int slices() const { return most_groups / group_tiles(); }
  constexpr int groups() const { return slices() * group_tiles(); }
  constexpr int begin_of(int split) const { return slabs * split / splits; }
};

/// One wave of blocks, or several full waves.
constexpr Tiling whole_tiling(int inputs, int outputs, bool is_pairs, int processors) {
  const int units = is_pairs ? outputs / 2 : outputs, step = is_pairs ? 4 : 8;
  Tiling tiling;
  tiling.is_pairs = is_pairs;
  tiling.slabs = divide_up(inputs, kSlabInputs);
  for (int waves = 1; tiling.box == 0 || tiling.group_tiles() > kMostGroupTiles; ++waves)
    tiling.box = round_up(divide_up(units, waves * processors), step);
  tiling.tiles = divide_up(units, tiling.box);
  return tiling;
}

/// Tiles of 64 outputs and as many splits as give each multiprocessor one block; smaller tiles where that
/// leaves more than a tenth of them idle.
constexpr Tiling split_tiling(int inputs, int outputs, int processors) {
  Tiling best;
  int most_blocks = 0;
  for (int box = kGroupOutputs; box >= 8; box -= 8) {
    Tiling tiling;
    tiling.box = box;
    tiling.tiles = divide_up(outputs, box);
    tiling.slabs = divide_up(inputs, kSlabInputs);
    tiling.splits = std::clamp(processors / tiling.tiles, 1, std::min(kMostSplits, tiling.slabs));
    const int blocks = std::min(tiling.tiles * tiling.splits, processors);
    if (blocks <= most_blocks) continue;
    most_blocks = blocks;
    best = tiling;
    if (10 * blocks >= 9 * processors) break;
  }
  return best;
}

/// Pipeline stages, each weights [output, 128] (of pairs gates, then ups) and x [row, 128]; behind the last
/// one what a wgmma reads beyond the outputs and the rows. The epilogue overlays it with the sums
/// [slice, row, output], float32.
struct FewLayout {
  int stages = 0, stage_stride = 0;
  int x_begin = 0;  // within a stage
  int x_rows = 0;   // that are copied
  int stages_in_flight = 0;
  int bytes = 0;

  constexpr FewLayout() = default;
  constexpr FewLayout(const Tiling& tiling, int multiplied_rows, int rows, int processors)
      : x_rows(round_up(rows, 8)) {
    constexpr int kAlignment = 1024;
    x_begin = round_up(128 * tiling.block_outputs(), kAlignment);
    stage_stride = x_begin + 128 * x_rows;
    const int reached =
        std::max(128 * kGroupOutputs * tiling.group_tiles(), x_begin + 128 * multiplied_rows);
    const int beyond = round_up(std::max(0, reached - stage_stride), kAlignment);
    const bool is_alone = tiling.tiles * tiling.splits <= processors;
    const int room = is_alone ? kPipelineBytes : kHalfPipelineBytes;
    const int slabs = divide_up(tiling.slabs, tiling.splits);
    stages = std::min({(room - beyond) / stage_stride, kMostStages, slabs});
    // A stage is always the same slice's: it waits for all phases of its barriers, in their order.
    if (stages < slabs) stages -= stages % tiling.slices();
    const int in_flight = std::clamp(slabs * x_begin / 3, 48 << 10, 80 << 10);
    stages_in_flight = std::clamp(in_flight / x_begin, 1, stages);
    bytes = std::max({stages * stage_stride + beyond, sums_bytes(tiling, multiplied_rows),
                      is_alone ? kLeastSharedBytes : 0});
  }
  static constexpr int pitch(const Tiling& tiling) { return tiling.block_outputs() + 4; }
  static constexpr int sums_bytes(const Tiling& tiling, int rows) {
    return 4 * tiling.slices() * rows * pitch(tiling);
  }
};

}  // namespace slime::kernels::cuda::fp8
