#pragma once

/// Runs of tokens through a gated delta net one token at a time (kernels/cpu/delta_step.h): the bits of
/// decode, whatever a run's length and whatever else is in the batch.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gated_delta.h"
#include "kernels/segments.h"

namespace slime::kernels {

/// Rows [begin, begin + count), and the state that they advance.
struct DeltaRunRows {
  int64_t begin = 0, count = 0;
  float* state = nullptr;
};

/// in.mixed_TE: before the convolution, whose weights are conv_E1J. Float32 copies are made of what is in
/// another precision. Returns float32 [T, N V].
Tensor delta_runs(const DeltaTokens& in, const Tensor& conv_E1J, const DeltaShape& shape,
                  std::span<const DeltaRunRows> runs);

/// The same over segments: a state begins with zeros, or as the parent's ended.
Tensor delta_segments_by_token(const DeltaTokens& in, const Tensor& conv_E1J,
                               const DeltaShape& shape, const std::vector<Segment>& segments);

}  // namespace slime::kernels
