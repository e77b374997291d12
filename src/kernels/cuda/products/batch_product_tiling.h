#pragma once

/// Tiling of a product of few rows (kernels/cuda/products/batch_product.h) over thread blocks, and
/// its shared memory layout. Plain integers: tests on machines without a GPU see this file.
///
/// "Block" means a thread block (CTA) here, "group" a warpgroup of four warps, "slab" 64 inputs
/// (one 128-byte swizzle row), "k tile" the inputs of one pipeline stage, "unit" an output or a
/// gate-up pair.

#include <algorithm>

#include "core/divide_up.h"

namespace slime::kernels::cuda::batch {

inline constexpr int kSlabInputs = 64;    // 128 bytes of bfloat16
inline constexpr int kGroupOutputs = 64;  // M of a wgmma instruction
inline constexpr int kMostGroups = 3;
inline constexpr int kMaxStages = 16;
inline constexpr int kMostSplits = 8;
/// Two producer warps, of each one thread at work: for weights and for x.
inline constexpr int kProducerThreads = 64;
/// Outputs that a thread stores at once; the pairs of a block are a multiple.
inline constexpr int kPiece = 4;

/// Stages of 64 KB altogether do not cover the memory's latency; more than 160 KB gain nothing.
inline constexpr int kPipelineBytes = 160 << 10;
/// More than half of a multiprocessor's, for an occupancy of one: blocks of the next kernel that
/// ran beside this one's would also run beside those of attention, and prefetch their weights when
/// it needs the bandwidth.
inline constexpr int kLeastSharedBytes = 132 << 10;
/// With more blocks than multiprocessors the occupancy is two: one block hides the prologue and
/// epilogue of the other.
inline constexpr int kHalfPipelineBytes = 112 << 10;

/// In-flight bytes: how much of its weights a block may have requested and not received. x and the
/// reads of the preceding kernel, which are on the critical path, wait in the same queues: these
/// are kept short where a product is short, and longer where bandwidth counts.
constexpr int bytes_in_flight(int block_bytes) {
  return std::clamp(block_bytes / 3, 24 << 10, 80 << 10);
}

struct Tiling {
  bool is_pairs = false;  // outputs are gates, then as many ups
  int box = 0;            // units of a block: rows of the weights' TMA box
  int tiles = 0;          // blocks that cover all outputs
  int splits = 1;         // split-K: blocks that share the inputs of a tile
  int slabs = 1;          // in a stage
  int k_tiles = 0;        // that cover all inputs

  constexpr int block_outputs() const { return is_pairs ? 2 * box : box; }
  constexpr int groups() const { return divide_up(block_outputs(), kGroupOutputs); }
  /// A multiprocessor has one block at most.
  constexpr bool is_alone(int processors) const { return tiles * splits <= processors; }
};

/// Stages are so deep that a copy is some kilobytes. inputs: a multiple of 64.
constexpr Tiling with_stages(Tiling tiling, int inputs) {
  const int outputs = tiling.block_outputs();
  tiling.slabs = outputs <= kGroupOutputs / 2 ? 4 : outputs <= kGroupOutputs ? 2 : 1;
  while (inputs / kSlabInputs % tiling.slabs != 0) tiling.slabs /= 2;
  tiling.k_tiles = inputs / (kSlabInputs * tiling.slabs);
  return tiling;
}

/// Split-K: tiles of 64 outputs and as many splits of the inputs as give each multiprocessor one
/// block; smaller tiles where that leaves more than a tenth of the multiprocessors idle.
constexpr Tiling split_k_tiling(int inputs, int outputs, int processors) {
  Tiling best;
  int most_blocks = 0;
  for (int box = kGroupOutputs; box >= 8; box -= 8) {
    Tiling tiling;
    tiling.box = box;
    tiling.tiles = divide_up(outputs, box);
    tiling = with_stages(tiling, inputs);
    tiling.splits = std::clamp(processors / tiling.tiles, 1, std::min(kMostSplits, tiling.k_tiles));
    const int blocks = std::min(tiling.tiles * tiling.splits, processors);
    if (blocks <= most_blocks) continue;
    most_blocks = blocks;
    best = tiling;
    if (10 * blocks >= 9 * processors) break;
  }
  return best;
}

/// Without split-K: one wave of blocks, one to a multiprocessor, or several full waves.
constexpr Tiling output_tiling(int inputs, int outputs, bool is_pairs, int processors) {
  const int units = is_pairs ? outputs / 2 : outputs, step = is_pairs ? kPiece : 8;
  Tiling tiling;
  tiling.is_pairs = is_pairs;
  for (int waves = 1; tiling.box == 0 || tiling.groups() > kMostGroups; ++waves)
    tiling.box = round_up(divide_up(units, waves * processors), step);
  tiling.tiles = divide_up(units, tiling.box);
  return with_stages(tiling, inputs);
}

/// Shared memory of a block, in bytes: pipeline stages, each weights [slab, output, 64] (of pairs
/// gates, then ups) and x [slab, row, 64]; behind the last stage the bytes that a wgmma reads
/// beyond the block's outputs and the rows of x that were copied. The epilogue overlays it with the
/// accumulators [row, output], float32.
struct SharedLayout {
  int stages = 0;
  int stage_stride = 0;  // from one stage to the next
  int x_begin = 0;       // of x within a stage
  /// Rows of x that are copied, a multiple of eight: zero-filling rows out of bounds takes the copy
  /// engine longer than copying.
  int x_rows = 0;
  int stages_in_flight = 0;  // whose weights may be in flight
  int hidden_begin = 0;      // of h, where the kernel makes it
  int bytes = 0;             // total

  constexpr SharedLayout() = default;
  /// rows: as multiplied, 8, 16, 32 or 64; rows_there: those that x has. hidden_bytes: of h behind the stages.
  constexpr SharedLayout(const Tiling& tiling, int rows, int rows_there, int processors,
                         int hidden_bytes = 0)
      : x_rows(round_up(rows_there, 8)) {
    constexpr int kAlignment = 1024;
    const auto aligned = [](int size) { return round_up(size, kAlignment); };
    const int outputs = tiling.block_outputs();
    x_begin = aligned(128 * tiling.slabs * outputs);
    stage_stride = x_begin + 128 * tiling.slabs * x_rows;
    const int reached =
        std::max(128 * (outputs * (tiling.slabs - 1) + kGroupOutputs * tiling.groups()),
                 x_begin + 128 * (x_rows * (tiling.slabs - 1) + rows));
    const int beyond = aligned(std::max(0, reached - stage_stride));
    const bool is_alone = tiling.is_alone(processors);
    const int room = (is_alone ? kPipelineBytes : kHalfPipelineBytes) - hidden_bytes;
    const int k_tiles = divide_up(tiling.k_tiles, tiling.splits);
    stages = std::min({(room - beyond) / stage_stride, kMaxStages, k_tiles});
    stages_in_flight = std::clamp(bytes_in_flight(k_tiles * x_begin) / x_begin, 1, stages);
    hidden_begin = stages * stage_stride + beyond;
    bytes = std::max(
        {hidden_begin + hidden_bytes, sums_bytes(tiling, rows), is_alone ? kLeastSharedBytes : 0});
  }

  /// Leading dimension of the accumulators, in floats: rows that a warp writes at once lie in
  /// different banks.
  static constexpr int pitch(const Tiling& tiling) { return tiling.block_outputs() + 4; }
  static constexpr int sums_bytes(const Tiling& tiling, int rows) {
    return 4 * rows * pitch(tiling);
  }
};

}  // namespace slime::kernels::cuda::batch
