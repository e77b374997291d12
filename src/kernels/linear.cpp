#include "kernels/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/device.h"
#include "kernels/kept_param.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TI, const MatrixParam& weight,
                        const Param& bias) {
    Tensor hidden;
    Tensor y_TO = adapted_linear(x_TI, weight.matrix, bias.value, &hidden);
    ctx->save_for_backward({x_TI, hidden});
    keep(ctx, "weight", weight);
    ctx->saved_data["bias_grad"] = bias.grad;
    return y_TO;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor x_TI = saved[0], hidden = saved[1];
    const Tensor dy_TO = grads[0].contiguous();
    const MatrixParam weight = kept_matrix_param(ctx, "weight");
    const Tensor bias_grad = ctx->saved_data["bias_grad"].toTensor();
    if (bias_grad.defined()) kernels_for(dy_TO).add_bias_grad_(bias_grad, dy_TO);
    return {adapted_backward(weight, dy_TO, x_TI, hidden), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor linear(const Tensor& x_TI, const MatrixParam& weight_OI, const Param& bias_O) {
  const TraceRange range("linear");
  check(x_TI.size(1) == weight_OI.matrix.inputs(),
        "rows of a linear layer's input are as long as its weight's");
  if (at::GradMode::is_enabled() && x_TI.requires_grad())
    return Linear::apply(x_TI, in_this_pass(weight_OI), bias_O);
  return adapted_linear(x_TI, weight_OI.matrix, bias_O.value);
}

Tensor logits(const Tensor& hidden_TI, const MatrixParam& head_OI) {
  const TraceRange range("logits");
  at::NoGradGuard no_grad;
  return adapted_logits(hidden_TI, head_OI.matrix);
}

}  // namespace slime::kernels
