#pragma once

/// A tensor with the numbers of one computation and the gradient of another: where both compute the same
/// thing in another order, and the first has the bits that are wanted.

#include "core/tensor.h"

namespace slime::kernels {

/// The numbers of `value`; gradients flow to `computed`, of the same sizes and precision.
Tensor with_value(const Tensor& computed, const Tensor& value);

}  // namespace slime::kernels
