#pragma once

/// Matrix products that keep what their input was made from instead of the input itself: in the
/// backward pass it is made again, by one pass over memory. A layer so keeps a quarter fewer bytes
/// and computes no product twice (Megatron: recompute-granularity selective).
///
/// Dimensions: T tokens, H hidden, O outputs, F feed-forward width.

#include "core/tensor.h"
#include "kernels/matrix.h"

namespace slime::kernels {

struct AddedLinear {
  Tensor sum_TH;  // the residual stream from here on
  Tensor y_TO;
};

/// sum = x + update; y = norm(sum) W^T + b, as add_rms_norm and linear give them. For grad mode.
AddedLinear add_norm_linear(const Tensor& x_TH, const Tensor& update_TH, const Param& norm_H,
                            double eps, const MatrixParam& weight_OH, const Param& bias_O);

/// swiglu(gate_up) W^T + b. For grad mode.
Tensor swiglu_linear(const Tensor& gate_up_T2F, const MatrixParam& weight_OF, const Param& bias_O);

}  // namespace slime::kernels
