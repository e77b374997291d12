#pragma once

/// A forest of segments as a few attentions between plain ranges of rows, for kernels that know
/// nothing of trees.
///
/// Level 0 is every segment against itself, causal. Level 1 + d has one pair per segment at depth d
/// that others continue: all rows of its descendants against its rows, without a mask. The softmax
/// over all ancestors of a row and itself is the sum of its levels, weighted by their logsumexp.
///
/// Context-parallel ranks have the queries of some segments only, and rows in the order of the ranks
/// (model/context_rows.h). Then level 0 has what this rank asks itself, and the pairs of the others
/// lie where no two of them meet:
///
///   pieces 0 1 2 3 of one segment, rows 0 3 | 1 2, queries 0 and 3:
///   level 0: 0 x 0, 3 x 3     level 1: 3 x 0     level 2: 3 x (1 2)

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/segments.h"

namespace slime::kernels {

/// Rows [query_begin, query_end) attend to rows [key_begin, key_end).
struct AttentionPair {
  int64_t query_begin = 0, query_end = 0;
  int64_t key_begin = 0, key_end = 0;

  bool operator==(const AttentionPair&) const = default;
};

/// Pairs of one launch: no row is a query of two of them, or a key of two.
struct AttentionLevel {
  std::vector<AttentionPair> pairs;
  bool causal = false;  // query i of a pair sees keys 0..i of it; otherwise all
};

/// False where some are only looked at.
bool are_all_queried(const std::vector<Segment>& segments);

/// Nothing when all have queries and descendants of a segment do not follow it directly (the packing of
/// train/packing.h writes them depth first), or when a window (0: none) would end within another segment of a row's
/// ancestors.
std::optional<std::vector<AttentionLevel>> attention_levels(const std::vector<Segment>& segments,
                                                            int64_t window);

}  // namespace slime::kernels
