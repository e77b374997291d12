#pragma once

/// Causal attention over the segments of a packed batch, without padding and without work between
/// strangers.
///
/// A token sees its segment's ancestors whole and its own segment up to itself; with a window w,
/// only tokens less than w positions back. Rows of a chain of segments are consecutive positions.
/// The prompt shared by n responses is computed once, forward and backward.
///
/// Dimensions: T tokens, N query heads, K key-value heads, D head size, E = (N + 2 K) D.

#include "core/tensor.h"
#include "kernels/device.h"
#include "kernels/param.h"

namespace slime::kernels {

/// heads_TE: query, key and value heads side by side, already rotated. Returns [T, N D];
/// differentiable in grad mode. sinks_N: a score of each head that takes its share of the softmax and
/// has no value (arXiv 2309.17453); undefined: there is none.
Tensor tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                      const RotaryShape& heads, const TreeAttentionShape& shape,
                      const Param& sinks_N = {});

}  // namespace slime::kernels
