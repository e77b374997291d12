#pragma once

/// Soft caps: numbers y = cap * tanh(x / cap) stay below the cap, and small ones are as they were
/// (arXiv 2408.00118, section 2). Of attention's scores before mask and softmax, and of logits before
/// everything that looks at them.

#include <ATen/ATen.h>

#include "core/tensor.h"

namespace slime::kernels {

/// x becomes y, in place.
inline void soft_cap_(Tensor x, double cap) { x.div_(cap).tanh_().mul_(cap); }

/// dy / dx where a number became y.
inline Tensor soft_cap_slope(const Tensor& y, double cap) { return 1 - (y / cap).square(); }

}  // namespace slime::kernels
