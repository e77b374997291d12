#include "kernels/fused_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/device.h"
#include "kernels/kept_param.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void keep_product(AutogradContext* ctx, const MatrixParam& weight, const Param& bias) {
  keep(ctx, "weight", weight);
  ctx->saved_data["bias_grad"] = bias.grad;
}

/// Adds the gradients of weight and bias; returns that of the product's input. `hidden`: of adapted_linear().
Tensor linear_backward(AutogradContext* ctx, const Tensor& dy_TO, const Tensor& x_TI,
                       const Tensor& hidden) {
  const MatrixParam weight = kept_matrix_param(ctx, "weight");
  const Tensor bias_grad = ctx->saved_data["bias_grad"].toTensor();
  if (bias_grad.defined()) kernels_for(dy_TO).add_bias_grad_(bias_grad, dy_TO);
  return adapted_backward(weight, dy_TO, x_TI, hidden);
}

struct AddNormLinear : torch::autograd::Function<AddNormLinear> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x_TH, const Tensor& update_TH,
                               const Param& norm, double eps, const MatrixParam& weight,
                               const Param& bias) {
    const Device& device = kernels_for(x_TH);
    Tensor sum_TH;
    const Tensor normed_TH = device.add_rms_norm(x_TH, update_TH, norm.value, eps, sum_TH);
    Tensor hidden;
    const Tensor y_TO = adapted_linear(normed_TH, weight.matrix, bias.value, &hidden);
    ctx->save_for_backward({sum_TH, hidden});
    ctx->saved_data["norm"] = norm.value;
    ctx->saved_data["norm_grad"] = norm.grad;
    ctx->saved_data["eps"] = eps;
    keep_product(ctx, weight, bias);
    return {sum_TH, y_TO};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor sum_TH = saved[0];
    const Tensor norm_H = ctx->saved_data["norm"].toTensor();
    const double eps = ctx->saved_data["eps"].toDouble();
    const Device& device = kernels_for(sum_TH);
    const Tensor dnormed_TH =
        linear_backward(ctx, grads[1].contiguous(), device.rms_norm(sum_TH, norm_H, eps), saved[1]);
    const Tensor dx_TH =
        device.add_rms_norm_backward(grads[0].contiguous(), dnormed_TH, sum_TH, norm_H, eps,
                                     ctx->saved_data["norm_grad"].toTensor());
    return {dx_TH, dx_TH, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct SwigluLinear : torch::autograd::Function<SwigluLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up_T2F, const MatrixParam& weight,
                        const Param& bias) {
    const Device& device = kernels_for(gate_up_T2F);
    Tensor hidden;
    Tensor y_TO = adapted_linear(device.swiglu(gate_up_T2F), weight.matrix, bias.value, &hidden);
    ctx->save_for_backward({gate_up_T2F, hidden});
    keep_product(ctx, weight, bias);
    return y_TO;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor gate_up_T2F = saved[0];
    const Device& device = kernels_for(gate_up_T2F);
    const Tensor dgated_TF =
        linear_backward(ctx, grads[0].contiguous(), device.swiglu(gate_up_T2F), saved[1]);
    return {device.swiglu_backward(dgated_TF, gate_up_T2F), Tensor(), Tensor()};
  }
};

}  // namespace

AddedLinear add_norm_linear(const Tensor& x_TH, const Tensor& update_TH, const Param& norm_H,
                            double eps, const MatrixParam& weight_OH, const Param& bias_O) {
  check(at::GradMode::is_enabled(), "what is made again in the backward pass has one");
  const variable_list out =
      AddNormLinear::apply(x_TH, update_TH, norm_H, eps, in_this_pass(weight_OH), bias_O);
  return {out[0], out[1]};
}

Tensor swiglu_linear(const Tensor& gate_up_T2F, const MatrixParam& weight_OF, const Param& bias_O) {
  check(at::GradMode::is_enabled(), "what is made again in the backward pass has one");
  return SwigluLinear::apply(gate_up_T2F, in_this_pass(weight_OF), bias_O);
}

}  // namespace slime::kernels
