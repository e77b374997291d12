#include "kernels/causal_conv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Weights in the accumulation precision, a row for each tap.
Tensor taps_of(const Tensor& weight, at::ScalarType type) {
  return weight.view({weight.size(0), -1}).t().to(type).contiguous();
}

/// With the row of zeros behind it.
Tensor with_zeros(const Tensor& x_RE) {
  return at::constant_pad_nd(x_RE.to(accumulator_of(x_RE)), {0, 0, 0, 1});
}

Tensor before_silu(const Tensor& padded_RE, const Tensor& tap_JE, const Tensor& source_JT) {
  Tensor sum_TE = padded_RE.index_select(0, source_JT[0]).mul_(tap_JE[0]);
  for (int64_t j = 1; j < tap_JE.size(0); ++j)
    sum_TE.addcmul_(padded_RE.index_select(0, source_JT[j]), tap_JE[j]);
  return sum_TE;
}

struct CausalConv : torch::autograd::Function<CausalConv> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_RE, const Param& weight,
                        const Tensor& source_JT) {
    ctx->save_for_backward({x_RE});
    ctx->saved_data["weight"] = weight.value;
    ctx->saved_data["grad"] = weight.grad;
    ctx->saved_data["source"] = source_JT;
    return at::silu(
        before_silu(with_zeros(x_RE), taps_of(weight.value, accumulator_of(x_RE)), source_JT));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x_RE = ctx->get_saved_variables()[0],
                 weight = ctx->saved_data["weight"].toTensor(),
                 grad = ctx->saved_data["grad"].toTensor(),
                 source_JT = ctx->saved_data["source"].toTensor();
    const Tensor padded_RE = with_zeros(x_RE), tap_JE = taps_of(weight, accumulator_of(x_RE));
    const Tensor dsum_TE = at::silu_backward(grads[0], before_silu(padded_RE, tap_JE, source_JT));
    Tensor dx_RE = at::zeros_like(padded_RE);
    std::vector<Tensor> dtaps;
    for (int64_t j = 0; j < tap_JE.size(0); ++j) {
      kernels_for(dx_RE).add_rows_(dx_RE, source_JT[j], dsum_TE * tap_JE[j]);
      dtaps.push_back((dsum_TE * padded_RE.index_select(0, source_JT[j])).sum(0));
    }
    if (grad.defined()) grad.add_(at::stack(dtaps, 1).view(grad.sizes()));
    return {dx_RE.narrow(0, 0, x_RE.size(0)).to(x_RE.scalar_type()), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor causal_conv(const Tensor& x_RE, const Param& weight_EJ, const DeltaPlan& plan) {
  const TraceRange range("causal_conv");
  if (at::GradMode::is_enabled() && x_RE.requires_grad())
    return CausalConv::apply(x_RE, weight_EJ, plan.source_JT);
  return at::silu(before_silu(with_zeros(x_RE), taps_of(weight_EJ.value, accumulator_of(x_RE)),
                              plan.source_JT));
}

}  // namespace slime::kernels
