#pragma once

/// Products with the two factors of a low-rank pair (kernels/adapters.h), of whichever device computes them. Compiled
/// into a GPU's side too.

#include "kernels/adapters.h"
#include "kernels/device.h"

namespace slime::kernels {

/// In the accumulation precision.
Tensor to_accumulator(const Tensor& x);

/// x A^T in the accumulation precision. A narrow x multiplies an A that is as narrow.
Tensor times_a(const Device& device, const Tensor& x_TI, const Tensor& a_RI);

/// scale h B^T.
Tensor times_b(const Device& device, const Tensor& h_TR, const Tensor& b_OR, double scale);

/// Gradient of x A^T, [T, R].
Tensor times_b_grad(const Device& device, const Tensor& dy_TO, const Tensor& b_OR, double scale);

/// The only adapter of a pass with gradients.
const std::vector<const LowRankPair*>& trained(const MatrixAdapters& adapters);

}  // namespace slime::kernels
