#include "kernels/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TH, const Param& weight, double eps) {
    ctx->save_for_backward({x_TH});
    ctx->saved_data["weight"] = weight.value;
    ctx->saved_data["grad"] = weight.grad;
    ctx->saved_data["eps"] = eps;
    return kernels_for(x_TH).rms_norm(x_TH, weight.value, eps);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor dx = kernels_for(grads[0]).rms_norm_backward(
        grads[0].contiguous(), ctx->get_saved_variables()[0], ctx->saved_data["weight"].toTensor(),
        ctx->saved_data["eps"].toDouble(), ctx->saved_data["grad"].toTensor());
    return {dx, Tensor(), Tensor()};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x_TH, const Tensor& update_TH,
                               const Param& weight, double eps) {
    Tensor sum_TH;
    const Tensor normed_TH =
        kernels_for(x_TH).add_rms_norm(x_TH, update_TH, weight.value, eps, sum_TH);
    ctx->save_for_backward({sum_TH});
    ctx->saved_data["weight"] = weight.value;
    ctx->saved_data["grad"] = weight.grad;
    ctx->saved_data["eps"] = eps;
    return {sum_TH, normed_TH};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    // Materialised zeros stand in for an output that nobody used.
    const Tensor dx = kernels_for(grads[1]).add_rms_norm_backward(
        grads[0].contiguous(), grads[1].contiguous(), ctx->get_saved_variables()[0],
        ctx->saved_data["weight"].toTensor(), ctx->saved_data["eps"].toDouble(),
        ctx->saved_data["grad"].toTensor());
    return {dx, dx, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x_TH, const Param& weight_H, double eps) {
  const TraceRange range("rms_norm");
  if (at::GradMode::is_enabled() && x_TH.requires_grad())
    return RmsNorm::apply(x_TH, weight_H, eps);
  return kernels_for(x_TH).rms_norm(x_TH, weight_H.value, eps);
}

AddedNorm add_rms_norm(const Tensor& x_TH, const Tensor& update_TH, const Param& weight_H,
                       double eps) {
  const TraceRange range("add_rms_norm");
  if (at::GradMode::is_enabled() && (x_TH.requires_grad() || update_TH.requires_grad())) {
    const variable_list out = AddRmsNorm::apply(x_TH, update_TH, weight_H, eps);
    return {out[0], out[1]};
  }
  return {x_TH, kernels_for(x_TH).add_rms_norm_(x_TH, update_TH, weight_H.value, eps)};
}

}  // namespace slime::kernels
