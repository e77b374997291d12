#pragma once

/// Gated feed-forward activation. Dimensions: T tokens, F feed-forward width. arXiv 2002.05202.

#include "core/tensor.h"

namespace slime::kernels {

/// silu(gate) * up, where each row of gate_up_T2F is [gate; up].
Tensor swiglu(const Tensor& gate_up_T2F);

}  // namespace slime::kernels
