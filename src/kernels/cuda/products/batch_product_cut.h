#pragma once

/// How a product of few rows (kernels/cuda/products/batch_product.h) is cut into blocks, and how a
/// block's shared memory is laid out. Plain integers: tests on machines without a GPU see this
/// file.

#include <algorithm>

#include "core/divide_up.h"

namespace slime::kernels::cuda::batch {

inline constexpr int kSlabInputs = 64;  // 128 bytes
inline constexpr int kGroupOutputs = 64;
inline constexpr int kMostGroups = 3;  // of four warps
inline constexpr int kMaxStages = 16;
inline constexpr int kMostParts = 8;
inline constexpr int kAskers = 64;  // threads that ask for weights and x: one of each warp
inline constexpr int kPiece = 4;    // outputs that a thread writes; pairs of a block are a multiple

/// A ring of 64 KB is too small for the memory's latency; what is more than 160 gains nothing.
inline constexpr int kRingBytes = 160 << 10;
/// More than half of a processor's: blocks of the next kernel that came to lie beside this one's
/// would lie beside those of attention, too, and ask for their weights when it needs the memory.
inline constexpr int kLeastSharedBytes = 132 << 10;
/// With more blocks than processors two share one: one hides the other's beginning and end.
inline constexpr int kHalfRingBytes = 112 << 10;

/// Of a block's weights, so many may be on their way from memory. What everybody waits for, x and
/// what the kernel before this one reads, comes through the same queues: they are kept short where
/// a product is, and longer where the memory's rate counts.
constexpr int bytes_at_once(int block_bytes) {
  return std::clamp(block_bytes / 3, 24 << 10, 80 << 10);
}

struct Cut {
  bool is_pairs = false;  // outputs are gates, then as many ups
  int box = 0;            // outputs of a block, or pairs
  int tiles = 0;          // blocks that all outputs take
  int parts = 1;          // of the inputs
  int slabs = 1;          // of 64 inputs in a stage
  int chunks = 0;         // stages that all inputs take

  constexpr int block_outputs() const { return is_pairs ? 2 * box : box; }
  constexpr int groups() const { return divide_up(block_outputs(), kGroupOutputs); }
};

/// Stages are so long that a block asks for some kilobytes at a time. inputs: a multiple of 64.
constexpr Cut with_stages(Cut cut, int inputs) {
  const int outputs = cut.block_outputs();
  cut.slabs = outputs <= kGroupOutputs / 2 ? 4 : outputs <= kGroupOutputs ? 2 : 1;
  while (inputs / kSlabInputs % cut.slabs != 0) cut.slabs /= 2;
  cut.chunks = inputs / (kSlabInputs * cut.slabs);
  return cut;
}

/// Blocks of 64 outputs and as many parts of the inputs as make a block for each processor; smaller
/// ones where that leaves more than a tenth of the processors idle.
constexpr Cut cut_into_parts(int inputs, int outputs, int processors) {
  Cut best;
  int most_blocks = 0;
  for (int box = kGroupOutputs; box >= 8; box -= 8) {
    Cut cut;
    cut.box = box;
    cut.tiles = divide_up(outputs, box);
    cut = with_stages(cut, inputs);
    cut.parts = std::clamp(processors / cut.tiles, 1, std::min(kMostParts, cut.chunks));
    const int blocks = std::min(cut.tiles * cut.parts, processors);
    if (blocks <= most_blocks) continue;
    most_blocks = blocks;
    best = cut;
    if (10 * blocks >= 9 * processors) break;
  }
  return best;
}

/// As many blocks as processors, or a multiple of that.
constexpr Cut cut_outputs(int inputs, int outputs, bool is_pairs, int processors) {
  const int units = is_pairs ? outputs / 2 : outputs, step = is_pairs ? kPiece : 8;
  Cut cut;
  cut.is_pairs = is_pairs;
  for (int waves = 1; cut.box == 0 || cut.groups() > kMostGroups; ++waves)
    cut.box = round_up(divide_up(units, waves * processors), step);
  cut.tiles = divide_up(units, cut.box);
  return with_stages(cut, inputs);
}

/// Of a block: stages of weights as [slab, output, 64] (of pairs gates, then ups) and x as [slab,
/// row, 64], and behind the last one what a group multiplies beyond the block's outputs and the
/// rows that were brought. When the products are done the sums take its place, as [row, output].
struct SharedLayout {
  int stages = 0, slot_bytes = 0, x_begin = 0;
  /// As brought, a multiple of eight: what is not there takes the copy engine longer than what is.
  int x_rows = 0;
  int at_once = 0;  // stages whose weights may be on their way
  int bytes = 0;    // of it all

  constexpr SharedLayout() = default;
  /// rows: as multiplied, 8, 16, 32 or 64; rows_there: of x.
  constexpr SharedLayout(const Cut& cut, int rows, int rows_there, int processors)
      : x_rows(round_up(rows_there, 8)) {
    constexpr int kAlignment = 1024;
    const auto aligned = [](int size) { return round_up(size, kAlignment); };
    const int outputs = cut.block_outputs();
    x_begin = aligned(128 * cut.slabs * outputs);
    slot_bytes = x_begin + 128 * cut.slabs * x_rows;
    const int reached = std::max(128 * (outputs * (cut.slabs - 1) + kGroupOutputs * cut.groups()),
                                 x_begin + 128 * (x_rows * (cut.slabs - 1) + rows));
    const int beyond = aligned(std::max(0, reached - slot_bytes));
    const bool is_alone = cut.tiles * cut.parts <= processors;
    const int room = is_alone ? kRingBytes : kHalfRingBytes;
    const int chunks = divide_up(cut.chunks, cut.parts);
    stages = std::min({(room - beyond) / slot_bytes, kMaxStages, chunks});
    at_once = std::clamp(bytes_at_once(chunks * x_begin) / x_begin, 1, stages);
    bytes = std::max(
        {stages * slot_bytes + beyond, sums_bytes(cut, rows), is_alone ? kLeastSharedBytes : 0});
  }

  /// Between two rows of sums, in floats: rows that a warp writes at once lie in different banks.
  static constexpr int pitch(const Cut& cut) { return cut.block_outputs() + 4; }
  static constexpr int sums_bytes(const Cut& cut, int rows) { return 4 * rows * pitch(cut); }
};

}  // namespace slime::kernels::cuda::batch
