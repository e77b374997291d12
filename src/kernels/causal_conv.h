#pragma once

/// A short convolution along the sequence, of each channel by itself, with SiLU behind it: what
/// gated delta nets do to queries, keys and values before they meet the state (arXiv 2412.06464,
/// section 3.4).
///
///   y[t, e] = silu(sum over j of w[e, j] x[t - J + 1 + j, e])
///
/// Dimensions: T tokens, E channels, J taps, R = T and the rows before the first tokens
/// (kernels/delta_plan.h).

#include "core/tensor.h"
#include "kernels/delta_plan.h"
#include "kernels/param.h"

namespace slime::kernels {

/// [T, E] in float32 (float64 for float64). x_RE: rows that plan.source_JT numbers, without the zeros.
/// weight_EJ: [E, J], or [E, 1, J] as files have it. Differentiable in grad mode, in x and the weight.
Tensor causal_conv(const Tensor& x_RE, const Param& weight_EJ, const DeltaPlan& plan);

}  // namespace slime::kernels
