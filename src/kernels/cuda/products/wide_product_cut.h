#pragma once

/// How a product of 65 to 256 rows (kernels/cuda/products/wide_product.h) is cut into blocks. Plain
/// integers: tests on machines without a GPU see this file.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/divide_up.h"

namespace slime::kernels::cuda::wide {

inline constexpr int kSlabInputs = 64;  // 128 bytes: the inputs of a stage
inline constexpr int kTileRows = 64;    // that four warps multiply at a time
inline constexpr int kGroups = 2;       // of four warps
inline constexpr int kMaxStages = 8;
inline constexpr int kMostParts = 8;
inline constexpr int kSharedBytes = 226 << 10;  // of a block: one to a processor

/// Outputs of a block: the kernels there are. Of pairs half are gates, half ups.
using BlockOutputs = std::integer_sequence<int, 48, 64, 80, 96, 112, 128, 152, 192>;

struct Cut {
  int outputs = 0;  // of a block
  int tiles = 0;    // blocks that all outputs take
  int parts = 1;    // of the inputs
};

/// Of the processor that is done last, in units of an output times 64 inputs with 256 rows, which
/// take 5.5 nanoseconds of one (NVIDIA H200). Outputs have to be written, x costs as much as some
/// more of them, and parts are written and read again.
constexpr int64_t cost_of(const Cut& cut, int chunks, int outputs, int processors) {
  constexpr int kOfWriting = 400, kOfX = 8, kOutputsOfUnit = 10;
  const int64_t rounds = divide_up(cut.tiles * cut.parts, processors);
  const int64_t round = int64_t{divide_up(chunks, cut.parts)} * (cut.outputs + kOfX) + kOfWriting;
  return rounds * round + int64_t{cut.parts} * outputs / kOutputsOfUnit;
}

constexpr Cut cut_with(int block_outputs, int chunks, int outputs, bool has_parts, int processors) {
  Cut cut;
  cut.outputs = block_outputs;
  cut.tiles = divide_up(outputs, block_outputs);
  if (has_parts) cut.parts = std::clamp(processors / cut.tiles, 1, std::min(kMostParts, chunks));
  return cut;
}

template <int... kChoices>
constexpr Cut cheapest_of(std::integer_sequence<int, kChoices...>, int chunks, int outputs,
                          bool has_parts, int processors) {
  return std::min({cut_with(kChoices, chunks, outputs, has_parts, processors)...},
                  [&](const Cut& a, const Cut& b) {
                    return cost_of(a, chunks, outputs, processors) <
                           cost_of(b, chunks, outputs, processors);
                  });
}

/// chunks: of 64 inputs. Only what is added up later has parts.
constexpr Cut cut_wide(int chunks, int outputs, bool has_parts, int processors) {
  return cheapest_of(BlockOutputs(), chunks, outputs, has_parts, processors);
}

/// Of a block: stages of x as [row, 64] and of weights as [output, 64]; of pairs four gates and
/// four ups in turn. When the products are done the results of pairs take the last one's place.
struct SharedLayout {
  int x_bytes = 0, slot_bytes = 0, stages = 0, bytes = 0;

  /// rows: as multiplied, with those that are not there.
  constexpr SharedLayout(int rows, int outputs, int chunks_of_part) {
    x_bytes = 128 * rows;
    slot_bytes = x_bytes + round_up(128 * outputs, 1024);
    stages = std::min({kSharedBytes / slot_bytes, kMaxStages, chunks_of_part});
    bytes = stages * slot_bytes;
  }

  /// Between two rows of results, in 16-bit numbers: what a warp writes at once lies in different
  /// banks.
  static constexpr int pitch(int pairs) { return pairs % 8 == 4 ? pairs : pairs + 4; }
};

}  // namespace slime::kernels::cuda::wide
