#pragma once

/// Block-wise attention over segments for processors with AVX2: scores exist only for one block of
/// queries and keys at a time (online softmax; Dao et al., arXiv 2205.14135), the backward
/// recomputes them from the saved logsumexp.
///
/// heads, y, dy, dheads: float32, laid out as kernels/tree_attention.h says. The sums of the
/// backward are taken in a fixed order, whatever the threads do.

#include <vector>

#include "kernels/device.h"

namespace slime::kernels::cpu::avx2 {

void tree_attention(const float* heads, const std::vector<Segment>& segments,
                    const RotaryShape& shape, const TreeAttentionShape& attention, float* y,
                    float* logsumexp);

/// dheads must be zeros.
void tree_attention_backward(const float* dy, const float* y, const float* heads,
                             const float* logsumexp, const std::vector<Segment>& segments,
                             const RotaryShape& shape, const TreeAttentionShape& attention,
                             float* dheads);

}  // namespace slime::kernels::cpu::avx2
