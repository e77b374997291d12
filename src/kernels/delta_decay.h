#pragma once

/// Decay of a gated delta net's state: the share that a head keeps from one token to the next
/// (arXiv 2312.00752, section 3.6; arXiv 2412.06464, section 3.4).
///
///   log decay = -exp(a_log) softplus(a + bias)
///
/// Dimensions: T tokens, N heads.

#include "core/tensor.h"
#include "kernels/param.h"

namespace slime::kernels {

/// [T, N], at most 0, in float32 (float64 for float64) whatever a is. Differentiable in grad mode, in a
/// and both parameters.
Tensor log_decay(const Tensor& a_TN, const Param& a_log_N, const Param& bias_N);

}  // namespace slime::kernels
