#pragma once

/// Gated feed-forward activation with GELU. Dimensions: T tokens, F feed-forward width. arXiv
/// 2002.05202, with the tanh form of arXiv 1606.08415.

#include "core/tensor.h"

namespace slime::kernels {

/// gelu(gate) * up, where each row of gate_up_T2F is [gate; up]. Differentiable in grad mode.
Tensor geglu(const Tensor& gate_up_T2F);

}  // namespace slime::kernels
