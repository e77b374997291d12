#pragma once

/// Attention levels as launches whose scratch has a bound, for a backward that adds in one order.
///
/// In such a backward gradients of scores go through memory: one 16-bit number for each head, query row
/// and key row of every pair, padded to the longest pair of its launch. So long pairs are divided into
/// square pieces, and pairs of one launch are of similar lengths.
///
///   a causal pair of rows 0 1 2 (pieces): level 0: 0 x 0, 1 x 1, 2 x 2, causal
///                                         level 1: 1 x 0, 2 x 1       level 2: 2 x 0

#include <cstdint>
#include <vector>

#include "kernels/gpu/attention_levels.h"
#include "kernels/layer_shapes.h"

namespace slime::kernels {

/// Scratch of one launch, unless a single pair that is not divided needs more.
inline constexpr int64_t kOrderedScratchBytes = int64_t{1} << 30;

/// Rows of a piece, a power of two: one pair of so many query and key rows has at most the scratch.
int64_t ordered_rows(int64_t num_heads);

/// Rows of the longest sequence with a window that is one pair. Longer ones become sequences with copies of
/// the rows before them (kernels/gpu/windowed_rows.h), of which at least half are their own.
int64_t ordered_window_rows(int64_t num_heads, int64_t window);

/// Memory of a backward over sequences of together `rows` rows, besides gradients: scratch, and what sums of
/// pieces take. At most so much for sequences of at least half a tile.
int64_t ordered_backward_bytes(const RotaryShape& heads, int64_t rows, int64_t window);

/// The same pairs in pieces of at most `most_rows` rows. Whatever the first level's pairs write, its
/// pieces on the diagonal write, in the first level of the result. Causal pairs with a window stay whole.
std::vector<AttentionLevel> divided_levels(const std::vector<AttentionLevel>& levels,
                                           int64_t most_rows, int64_t window);

/// Launches of a level, one after another. In one launch lengths of queries, and of keys, have the same
/// power of two above them.
std::vector<AttentionLevel> ordered_launches(const AttentionLevel& level, int64_t num_heads);

}  // namespace slime::kernels
