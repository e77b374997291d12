#pragma once

/// Token order of a packed batch in layers with a state (kernels/gated_delta.h, causal_conv.h):
/// made once per batch, used by every layer.
///
/// A segment begins where its parent ends, with the state that is there; a segment without a parent
/// begins with zeros, or with a state that the caller brings. Segments are cut into chunks of
/// kDeltaChunk tokens from their own beginning, so a chunk does not depend on what else is in the
/// batch. Chunks that follow as many others as one another are a level; levels run one after another.
///
///   one prompt of 40 tokens, two responses of 10:   level 0: prompt 0..31   1: 32..39   2: both responses
///
/// Dimensions: T tokens, J taps of the convolution, M chunks, C = kDeltaChunk.

#include <vector>

#include "core/tensor.h"
#include "kernels/segments.h"

namespace slime::kernels {

inline constexpr int64_t kDeltaChunk = 32;

struct DeltaPlan {
  /// What begins with the rows of the batch: T rows, then `taps - 1` rows of each root where roots
  /// `have_start` (the tokens before them, oldest first), then a row of zeros.
  Tensor source_JT;  // int64: the row that tap j of a token reads
  Tensor row_MC;     // int64 [M * C]: token of each place of a chunk, or T where there is none
  Tensor place_T;    // int64: the place of each token
  Tensor before_M;   // int64: the chunk before it, counted in its level; a root's number in level 0
  std::vector<int64_t> level_starts;  // chunks of level l: [starts[l], starts[l + 1])
  std::vector<int64_t> last_chunks;   // of each segment
  int64_t num_roots = 0;

  int64_t num_chunks() const { return level_starts.back(); }
  int64_t num_levels() const { return static_cast<int64_t>(level_starts.size()) - 1; }
};

/// `segments` cover [0, T); parents come first. `device`: where the index tensors lie.
DeltaPlan make_delta_plan(const std::vector<Segment>& segments, int64_t taps, bool have_start,
                          at::Device device);

}  // namespace slime::kernels
