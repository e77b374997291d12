#pragma once

/// Root mean square norm, alone and with the residual addition before it. Dimensions: T tokens, H
/// hidden size. arXiv 1910.07467; statistics in float32 (float64).

#include "core/tensor.h"
#include "kernels/param.h"

namespace slime::kernels {

Tensor rms_norm(const Tensor& x_TH, const Param& weight_H, double eps);

struct AddedNorm {
  Tensor sum_TH;     // the residual stream from here on
  Tensor normed_TH;  // its norm
};

/// sum = x + update. Without grad mode the sum is written into x.
AddedNorm add_rms_norm(const Tensor& x_TH, const Tensor& update_TH, const Param& weight_H,
                       double eps);

}  // namespace slime::kernels
