#pragma once

/// Matrix products with weights. Dimensions: T tokens, I inputs, O outputs.

#include "core/tensor.h"
#include "kernels/matrix.h"

namespace slime::kernels {

/// x W^T + b: [T, O] in the precision of x, which may be wider than the weight's. The sums of a row
/// are taken in an order that does not depend on the other rows (decode and scoring of the same
/// token agree). The backward adds into weight.grad and bias.grad. bias may be undefined.
Tensor linear(const Tensor& x_TI, const MatrixParam& weight_OI, const Param& bias_O = {});

/// x W^T in float32 (float64 for float64): the output layer for a few rows, no gradient. For the
/// loss there is linear_logprob.h.
Tensor logits(const Tensor& hidden_TI, const MatrixParam& head_OI);

}  // namespace slime::kernels
