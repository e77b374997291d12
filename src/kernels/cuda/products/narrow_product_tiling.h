#pragma once

/// Tiling of a product of one or two rows (kernels/cuda/products/narrow_product.h) over thread
/// blocks, and its shared memory layout. Plain integers: tests on machines without a GPU see this
/// file. Words as in kernels/cuda/products/batch_product_tiling.h, but a group is some of the eight
/// consumer warps.

#include <algorithm>

#include "core/divide_up.h"

namespace slime::kernels::cuda::narrow {

inline constexpr int kMostRows = 2;
inline constexpr int kSlabInputs = 64;   // 128 bytes
inline constexpr int kStepInputs = 16;   // K of an mma instruction
inline constexpr int kTileOutputs = 16;  // M of an mma instruction
inline constexpr int kWarps = 8;         // consumers
inline constexpr int kMostTiles = 6;     // of a warp
inline constexpr int kMaxStages = 32;
inline constexpr int kMostSlabs = 16;         // of a stage
inline constexpr int kStageBytes = 24 << 10;  // at most, unless one slab has more
inline constexpr int kUnit = 4;               // outputs of a block are a multiple

inline constexpr int kSharedBytes = 200 << 10;
/// More than half of a multiprocessor's, for an occupancy of one; the reason is in
/// kernels/cuda/products/batch_product_tiling.h.
inline constexpr int kLeastSharedBytes = 132 << 10;
/// Of x, at most: the weights need the rest.
inline constexpr int kMostInputBytes = kSharedBytes / 2;

/// In-flight bytes of a block's weights: x waits in the same queues.
constexpr int bytes_in_flight(int block_bytes) {
  return std::clamp(block_bytes / 2, 48 << 10, 72 << 10);
}

struct Tiling {
  bool is_pairs = false;  // outputs are gates, then as many ups
  int box = 0;            // units of a block: rows of the weights' TMA box
  int blocks = 0;
  int slabs = 1;    // in a stage: 1, 2, 4, 8 or 16
  int k_tiles = 0;  // that cover all inputs

  constexpr int block_outputs() const { return is_pairs ? 2 * box : box; }
  /// Sliced K: warps that share the inputs of a stage. Where those are too few for all warps,
  /// groups of warps share its outputs.
  constexpr int slices() const { return std::min(kWarps, kSlabInputs / kStepInputs * slabs); }
  constexpr int groups() const { return kWarps / slices(); }
  /// Of a warp.
  constexpr int tiles() const { return divide_up(block_outputs(), groups() * kTileOutputs); }
  constexpr int multiplied_outputs() const { return groups() * tiles() * kTileOutputs; }
};

/// One wave of blocks, one to a multiprocessor, or several full waves. inputs: a multiple of 64.
constexpr Tiling narrow_tiling(int inputs, int outputs, bool is_pairs, int processors) {
  const int units = is_pairs ? outputs / 2 : outputs;
  Tiling tiling;
  tiling.is_pairs = is_pairs;
  for (int waves = 1; tiling.box == 0 || tiling.tiles() > kMostTiles; ++waves)
    tiling.box = round_up(divide_up(units, waves * processors), kUnit);
  tiling.blocks = divide_up(units, tiling.box);
  const auto fits = [&](int slabs) {
    return inputs / kSlabInputs % slabs == 0 && 128 * slabs * tiling.block_outputs() <= kStageBytes;
  };
  tiling.slabs = kMostSlabs;
  while (tiling.slabs > 1 && !fits(tiling.slabs)) tiling.slabs /= 2;
  tiling.k_tiles = inputs / (kSlabInputs * tiling.slabs);
  return tiling;
}

/// Shared memory of a block, in bytes: pipeline stages of weights [slab, output, 64] (of pairs
/// gates, then ups), x [row, input] with 16 bytes of padding between rows, the weights of the norm,
/// and accumulators [slice, output, kMostRows], float32. The last tiles multiply whatever bytes lie
/// behind the outputs, but not accumulators, which other warps may be writing.
struct SharedLayout {
  int stages = 0;
  int stage_stride = 0;  // from one stage to the next
  int x_begin = 0, norm_begin = 0, sums_begin = 0;
  int stages_in_flight = 0;
  int bytes = 0;  // total

  constexpr SharedLayout(const Tiling& tiling, int rows, bool has_norm) {
    const int inputs = tiling.k_tiles * tiling.slabs * kSlabInputs;
    const int x_bytes = rows * row_bytes(inputs), norm_bytes = has_norm ? 2 * inputs : 0;
    const int sums_bytes = 4 * tiling.slices() * tiling.multiplied_outputs() * kMostRows;
    const int behind = 128 * (tiling.multiplied_outputs() - tiling.block_outputs());
    const int between = std::max(x_bytes + norm_bytes, behind);
    stage_stride = round_up(stage_bytes(tiling), 1024);
    const int room = kSharedBytes - between - sums_bytes;
    stages = std::min({room / stage_stride, kMaxStages, tiling.k_tiles});
    stages_in_flight =
        std::clamp(bytes_in_flight(tiling.k_tiles * stage_stride) / stage_stride, 1, stages);
    x_begin = stages * stage_stride;
    norm_begin = x_begin + x_bytes;
    sums_begin = x_begin + between;
    bytes = std::max(sums_begin + sums_bytes, kLeastSharedBytes);
  }

  static constexpr int stage_bytes(const Tiling& tiling) {
    return 128 * tiling.slabs * tiling.block_outputs();
  }
  /// Leading dimension of x, in bytes: eight rows lie in different banks.
  static constexpr int row_bytes(int inputs) { return 2 * inputs + 16; }
};

}  // namespace slime::kernels::cuda::narrow
