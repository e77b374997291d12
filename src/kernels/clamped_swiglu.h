#pragma once

/// The gated activation of gpt-oss: SwiGLU with bounds, a steeper gate and one added to what it
/// multiplies, gates and ups in turn.
///
///   g = min(gate, limit), u = clamp(up, -limit, limit), y = (u + 1) g sigmoid(1.702 g)
///
/// Dimensions: T rows, F width. Rows of gate_up_T2F are gate, up, gate, up, ...

#include "core/tensor.h"

namespace slime::kernels {

Tensor clamped_swiglu(const Tensor& gate_up_T2F, double limit);
/// Gradient of gate_up; none where a bound holds.
Tensor clamped_swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F, double limit);

}  // namespace slime::kernels
