#pragma once

/// Gated feed-forward activation. Dimensions: T tokens, F feed-forward width. arXiv 2002.05202.

#include "core/tensor.h"
#include "kernels/matrix.h"

namespace slime::kernels {

/// silu(gate) * up, where each row of gate_up_T2F is [gate; up].
Tensor swiglu(const Tensor& gate_up_T2F);

/// The same of x W^T + b, whose rows are [gate; up]. Without a gradient, so that kernels need neither
/// keep nor round gates and ups: for engines, since passes of a trainer, with gradients or not, have
/// the same bits.
Tensor gated_linear(const Tensor& x_TI, const MatrixParam& weight_2FI, const Param& bias_2F = {});

}  // namespace slime::kernels
