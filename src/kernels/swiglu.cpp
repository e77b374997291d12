#include "kernels/swiglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up_T2F) {
    ctx->save_for_backward({gate_up_T2F});
    return kernels_for(gate_up_T2F).swiglu(gate_up_T2F);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {kernels_for(grads[0]).swiglu_backward(grads[0].contiguous(),
                                                  ctx->get_saved_variables()[0])};
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate_up_T2F) {
  const TraceRange range("swiglu");
  if (at::GradMode::is_enabled() && gate_up_T2F.requires_grad()) return Swiglu::apply(gate_up_T2F);
  return kernels_for(gate_up_T2F).swiglu(gate_up_T2F);
}

Tensor gated_linear(const Tensor& x_TI, const MatrixParam& weight_2FI, const Param& bias_2F) {
  const TraceRange range("gated_linear");
  check(!at::GradMode::is_enabled(), "gates and ups that have a gradient are kept");
  check(x_TI.size(1) == weight_2FI.matrix.inputs(),
        "rows of a linear layer's input are as long as its weight's");
  return adapted_gated_linear(x_TI, weight_2FI.matrix, bias_2F.value);
}

}  // namespace slime::kernels
