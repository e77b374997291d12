#include "kernels/delta_decay.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor shifted(const Tensor& a_TN, const Tensor& bias_N) {
  const auto wide = accumulator_of(a_TN);
  return a_TN.to(wide) + bias_N.to(wide);
}

Tensor rate_of(const Tensor& a_TN, const Tensor& a_log_N) {
  return a_log_N.to(accumulator_of(a_TN)).exp();
}

struct LogDecay : torch::autograd::Function<LogDecay> {
  static Tensor forward(AutogradContext* ctx, const Tensor& a_TN, const Param& a_log,
                        const Param& bias) {
    ctx->save_for_backward({a_TN});
    ctx->saved_data["a_log"] = a_log.value;
    ctx->saved_data["a_log_grad"] = a_log.grad;
    ctx->saved_data["bias"] = bias.value;
    ctx->saved_data["bias_grad"] = bias.grad;
    return at::softplus(shifted(a_TN, bias.value)).mul_(-rate_of(a_TN, a_log.value));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto tensor = [&](const char* name) { return ctx->saved_data[name].toTensor(); };
    const Tensor a_TN = ctx->get_saved_variables()[0], rate_N = rate_of(a_TN, tensor("a_log")),
                 x_TN = shifted(a_TN, tensor("bias"));
    const Tensor dx_TN = grads[0] * x_TN.sigmoid().mul_(-rate_N);
    if (const Tensor grad = tensor("bias_grad"); grad.defined()) grad.add_(dx_TN.sum(0));
    if (const Tensor grad = tensor("a_log_grad"); grad.defined())
      grad.sub_((grads[0] * at::softplus(x_TN)).sum(0).mul_(rate_N));
    return {dx_TN.to(a_TN.scalar_type()), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor log_decay(const Tensor& a_TN, const Param& a_log_N, const Param& bias_N) {
  if (at::GradMode::is_enabled() && a_TN.requires_grad())
    return LogDecay::apply(a_TN, a_log_N, bias_N);
  return at::softplus(shifted(a_TN, bias_N.value)).mul_(-rate_of(a_TN, a_log_N.value));
}

}  // namespace slime::kernels
