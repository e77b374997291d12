#pragma once

/// Kernels of a device beside their twins of kernels/cpu/reference.h in float64.

#include "acceptance/comparison.h"

namespace slime::acceptance {

/// Of a layer's forward pass (kernels/layer_kernels.h).
void compare_layers(const Side& side, const Tell& tell);
/// Of its backward pass (kernels/gradient_kernels.h).
void compare_gradients(const Side& side, const Tell& tell);
/// The optimizer step and the sum of squares, where tensors of the process are on `side.place`.
void compare_optimizer(const Side& side, const Tell& tell);
/// Draws of a GPU from given logits, beside kernels/cpu/sample.h. The GPU is open.
void compare_sampling(const Side& side, const Tell& tell);

}  // namespace slime::acceptance
