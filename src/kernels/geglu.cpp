#include "kernels/geglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Gate and up in the accumulation precision.
std::pair<Tensor, Tensor> wide_halves(const Tensor& gate_up_T2F) {
  const Tensor both = gate_up_T2F.to(accumulator_of(gate_up_T2F));
  const int64_t width = both.size(1) / 2;
  return {both.narrow(1, 0, width), both.narrow(1, width, width)};
}

Tensor gelu_times_up(const Tensor& gate_up_T2F) {
  const auto [gate, up] = wide_halves(gate_up_T2F);
  return (at::gelu(gate, "tanh") * up).to(gate_up_T2F.scalar_type());
}

struct Geglu : torch::autograd::Function<Geglu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up_T2F) {
    ctx->save_for_backward({gate_up_T2F});
    return gelu_times_up(gate_up_T2F);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor gate_up_T2F = ctx->get_saved_variables()[0];
    const auto [gate, up] = wide_halves(gate_up_T2F);
    const Tensor dy = grads[0].to(gate.scalar_type());
    return {at::cat({at::gelu_backward(dy * up, gate, "tanh"), dy * at::gelu(gate, "tanh")}, 1)
                .to(gate_up_T2F.scalar_type())};
  }
};

}  // namespace

Tensor geglu(const Tensor& gate_up_T2F) {
  const TraceRange range("geglu");
  if (at::GradMode::is_enabled() && gate_up_T2F.requires_grad()) return Geglu::apply(gate_up_T2F);
  return gelu_times_up(gate_up_T2F);
}

}  // namespace slime::kernels
