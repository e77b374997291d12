#pragma once

/// How a product of one or two rows (kernels/cuda/products/narrow_product.h) is cut into blocks,
/// and how a block's shared memory is laid out. Plain integers: tests on machines without a GPU see
/// this file.

#include <algorithm>

#include "core/divide_up.h"

namespace slime::kernels::cuda::narrow {

inline constexpr int kMostRows = 2;
inline constexpr int kSlabInputs = 64;  // 128 bytes
inline constexpr int kStepInputs = 16;  // that are multiplied at a time
inline constexpr int kTileOutputs = 16;
inline constexpr int kWarps = 8;      // that multiply
inline constexpr int kMostTiles = 6;  // of a warp
inline constexpr int kMaxStages = 32;
inline constexpr int kMostSlabs = 16;         // of a stage
inline constexpr int kStageBytes = 24 << 10;  // where inputs divide so; a slab may have more
inline constexpr int kUnit = 4;               // outputs of a block are a multiple

inline constexpr int kSharedBytes = 200 << 10;
/// More than half of a processor's: why two blocks are too many,
/// kernels/cuda/products/batch_product_cut.h.
inline constexpr int kLeastSharedBytes = 132 << 10;
/// Of x: the weights need the rest.
inline constexpr int kMostInputBytes = kSharedBytes / 2;

/// Of a block's weights, so many may be on their way from memory: x comes through the same queues.
constexpr int bytes_at_once(int block_bytes) {
  return std::clamp(block_bytes / 2, 48 << 10, 72 << 10);
}

struct Cut {
  bool is_pairs = false;  // outputs are gates, then as many ups
  int box = 0;            // outputs of a block, or pairs
  int blocks = 0;
  int slabs = 1;   // of 64 inputs in a stage: 1, 2, 4, 8 or 16
  int chunks = 0;  // stages that all inputs take

  constexpr int block_outputs() const { return is_pairs ? 2 * box : box; }
  /// Warps that share a stage's inputs; where those are too few for all, groups of them share its
  /// outputs.
  constexpr int parts() const { return std::min(kWarps, kSlabInputs / kStepInputs * slabs); }
  constexpr int groups() const { return kWarps / parts(); }
  /// Of a warp.
  constexpr int tiles() const { return divide_up(block_outputs(), groups() * kTileOutputs); }
  constexpr int multiplied_outputs() const { return groups() * tiles() * kTileOutputs; }
};

/// As many blocks as processors, or a multiple of that. inputs: a multiple of 64.
constexpr Cut cut_narrow(int inputs, int outputs, bool is_pairs, int processors) {
  const int units = is_pairs ? outputs / 2 : outputs;
  Cut cut;
  cut.is_pairs = is_pairs;
  for (int waves = 1; cut.box == 0 || cut.tiles() > kMostTiles; ++waves)
    cut.box = round_up(divide_up(units, waves * processors), kUnit);
  cut.blocks = divide_up(units, cut.box);
  const auto fits = [&](int slabs) {
    return inputs / kSlabInputs % slabs == 0 && 128 * slabs * cut.block_outputs() <= kStageBytes;
  };
  cut.slabs = kMostSlabs;
  while (cut.slabs > 1 && !fits(cut.slabs)) cut.slabs /= 2;
  cut.chunks = inputs / (kSlabInputs * cut.slabs);
  return cut;
}

/// Of a block: stages of weights as [slab, output, 64] (of pairs gates, then ups), x as [row,
/// input] with 16 bytes between rows, the weights of the norm, and sums as [part, output,
/// kMostRows]. The last tiles multiply what lies behind the outputs, but not sums, which other
/// warps may be writing.
struct SharedLayout {
  int stages = 0, slot_bytes = 0, x_begin = 0, norm_begin = 0, sums_begin = 0;
  int at_once = 0;  // stages that may be on their way
  int bytes = 0;    // of it all

  constexpr SharedLayout(const Cut& cut, int rows, bool has_norm) {
    const int inputs = cut.chunks * cut.slabs * kSlabInputs;
    const int x_bytes = rows * row_bytes(inputs), norm_bytes = has_norm ? 2 * inputs : 0;
    const int sums_bytes = 4 * cut.parts() * cut.multiplied_outputs() * kMostRows;
    const int behind = 128 * (cut.multiplied_outputs() - cut.block_outputs());
    const int between = std::max(x_bytes + norm_bytes, behind);
    slot_bytes = round_up(stage_bytes(cut), 1024);
    const int room = kSharedBytes - between - sums_bytes;
    stages = std::min({room / slot_bytes, kMaxStages, cut.chunks});
    at_once = std::clamp(bytes_at_once(cut.chunks * slot_bytes) / slot_bytes, 1, stages);
    x_begin = stages * slot_bytes;
    norm_begin = x_begin + x_bytes;
    sums_begin = x_begin + between;
    bytes = std::max(sums_begin + sums_bytes, kLeastSharedBytes);
  }

  static constexpr int stage_bytes(const Cut& cut) { return 128 * cut.slabs * cut.block_outputs(); }
  /// From one row of x to the next: eight of them lie in different banks.
  static constexpr int row_bytes(int inputs) { return 2 * inputs + 16; }
};

}  // namespace slime::kernels::cuda::narrow
