#pragma once

/// Matrix products of HIP's host side in ATen's words, for tensors of any device: so tests run them on the CPU.

#include "core/tensor.h"

namespace slime::kernels::hip {

/// y_TO = x_TI W_OI^T + b, added to what y_TO has where `accumulates`. y_TO may be float32 whatever x is: then nothing is
/// rounded to x's precision, and weights become float32 a part at a time.
void product_into(Tensor y_TO, const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O,
                  bool accumulates);

}  // namespace slime::kernels::hip
