#pragma once

/// Tiling of a product of 65 to 256 rows (kernels/cuda/products/wide_product.h) over thread blocks,
/// and its shared memory layout. Plain integers: tests on machines without a GPU see this file.
/// Words as in kernels/cuda/products/batch_product_tiling.h.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/divide_up.h"

namespace slime::kernels::cuda::wide {

inline constexpr int kSlabInputs = 64;  // 128 bytes: the inputs of a stage, a k tile
inline constexpr int kTileRows = 64;    // M of a wgmma instruction
inline constexpr int kGroups = 2;       // consumer warpgroups
inline constexpr int kMaxStages = 8;
inline constexpr int kMostSplits = 8;
inline constexpr int kSharedBytes = 226 << 10;  // of a block: an occupancy of one

/// Outputs of a block for which kernels are instantiated. Of pairs half are gates, half ups.
using BlockOutputs = std::integer_sequence<int, 48, 64, 80, 96, 112, 128, 152, 192>;

struct Tiling {
  int outputs = 0;  // of a block
  int tiles = 0;    // that cover all outputs
  int splits = 1;   // split-K: blocks that share the inputs of a tile
};

/// Cost model: time of the multiprocessor that is done last, in units of one output times 64 inputs
/// at 256 rows, 5.5 nanoseconds (NVIDIA H200). Every wave adds an epilogue, loading x costs as much
/// as some more outputs, and partial sums of split-K are written and read again.
constexpr int64_t cost_of(const Tiling& tiling, int k_tiles, int outputs, int processors) {
  constexpr int kOfWriting = 400, kOfX = 8, kOutputsOfUnit = 10;
  const int64_t waves = divide_up(tiling.tiles * tiling.splits, processors);
  const int64_t wave =
      int64_t{divide_up(k_tiles, tiling.splits)} * (tiling.outputs + kOfX) + kOfWriting;
  return waves * wave + int64_t{tiling.splits} * outputs / kOutputsOfUnit;
}

constexpr Tiling tiling_with(int block_outputs, int k_tiles, int outputs, bool is_split_k,
                             int processors) {
  Tiling tiling;
  tiling.outputs = block_outputs;
  tiling.tiles = divide_up(outputs, block_outputs);
  if (is_split_k)
    tiling.splits = std::clamp(processors / tiling.tiles, 1, std::min(kMostSplits, k_tiles));
  return tiling;
}

template <int... kChoices>
constexpr Tiling cheapest_of(std::integer_sequence<int, kChoices...>, int k_tiles, int outputs,
                             bool is_split_k, int processors) {
  return std::min({tiling_with(kChoices, k_tiles, outputs, is_split_k, processors)...},
                  [&](const Tiling& a, const Tiling& b) {
                    return cost_of(a, k_tiles, outputs, processors) <
                           cost_of(b, k_tiles, outputs, processors);
                  });
}

/// The cheapest tiling; one split unless `is_split_k`. k_tiles: inputs / 64.
constexpr Tiling wide_tiling(int k_tiles, int outputs, bool is_split_k, int processors) {
  return cheapest_of(BlockOutputs(), k_tiles, outputs, is_split_k, processors);
}

/// Shared memory of a block, in bytes: pipeline stages, each x [row, 64] and weights [output, 64],
/// of pairs interleaved by four (pair_tile_map()). The SwiGLU epilogue overlays the last stage read
/// with its results.
struct SharedLayout {
  int x_bytes = 0, stage_stride = 0, stages = 0, bytes = 0;

  /// rows: as multiplied, 128 or 256.
  constexpr SharedLayout(int rows, int outputs, int k_tiles_of_split) {
    x_bytes = 128 * rows;
    stage_stride = x_bytes + round_up(128 * outputs, 1024);
    stages = std::min({kSharedBytes / stage_stride, kMaxStages, k_tiles_of_split});
    bytes = stages * stage_stride;
  }

  /// Leading dimension of the results, in 16-bit numbers: what a warp writes at once lies in
  /// different banks.
  static constexpr int pitch(int pairs) { return pairs % 8 == 4 ? pairs : pairs + 4; }
};

}  // namespace slime::kernels::cuda::wide
