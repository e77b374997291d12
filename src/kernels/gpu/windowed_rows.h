#pragma once

/// A forest of segments as plain sequences, for attention with a window that reaches from a segment into
/// its ancestors and ends there: kernels that know nothing of trees cannot say where in another segment
/// a window begins (kernels/gpu/attention_levels.h).
///
/// Every segment gets copies of the rows before it that its window can reach, so it is a sequence of
/// its own, causal and with the same window. Copies are asked nothing.
///
///   window 3, a prompt of 4 and two responses of 2:   rows  0 1 2 3 | 2 3 4 5 | 2 3 6 7
///
/// Dimensions: T rows of the batch, G places of the sequences, P copies.

#include <optional>
#include <vector>

#include "kernels/gpu/attention_levels.h"
#include "kernels/segments.h"

namespace slime::kernels {

struct WindowedRows {
  std::vector<int64_t> row_G;    // of the batch
  std::vector<int64_t> place_T;  // of each row itself, not of a copy
  std::vector<int64_t> copy_P;   // places that are copies
  AttentionLevel level;          // the sequences
};

/// The same forest without segments longer than `most_rows`: the rest of such a one continues it.
std::vector<Segment> divided_segments(const std::vector<Segment>& segments, int64_t most_rows);

/// Nothing where some segments are only looked at. window > 0.
std::optional<WindowedRows> windowed_rows(const std::vector<Segment>& segments, int64_t window);

}  // namespace slime::kernels
