#pragma once

/// Parameters in an autograd context, for the backward of their products.

#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "kernels/matrix.h"

namespace slime::kernels {

/// Under entries that begin with `name`. Adapters and the name for messages outlive the backward.
void keep(torch::autograd::AutogradContext* ctx, const std::string& name, const Matrix& matrix);
Matrix kept_matrix(torch::autograd::AutogradContext* ctx, const std::string& name);

/// The same with gradients.
void keep(torch::autograd::AutogradContext* ctx, const std::string& name, const Param& param);
Param kept_param(torch::autograd::AutogradContext* ctx, const std::string& name);
void keep(torch::autograd::AutogradContext* ctx, const std::string& name, const MatrixParam& param);
MatrixParam kept_matrix_param(torch::autograd::AutogradContext* ctx, const std::string& name);

}  // namespace slime::kernels
