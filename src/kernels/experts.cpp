#include "kernels/experts.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/device.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// [E, rows of one expert, columns]. Undefined stays undefined.
Tensor by_expert(const Tensor& stacked, const ExpertVisits& visits) {
  const auto experts = static_cast<int64_t>(visits.starts.size()) - 1;
  return stacked.defined() ? stacked.view({experts, -1, stacked.size(1)}) : stacked;
}

/// Weights of the visits as a column, in their order.
Tensor weight_of_visits(const Tensor& weight_TK, const Tensor& place_TK) {
  const Tensor weight_S = at::empty({weight_TK.numel()}, weight_TK.options());
  return weight_S.index_copy_(0, place_TK.view({-1}), weight_TK.reshape({-1})).unsqueeze(1);
}

Tensor gate_up_of(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& gate_up) {
  return kernels_for(x_TH).grouped_linear(x_TH.index_select(0, visits.token_S),
                                          by_expert(gate_up, visits), visits.starts);
}

Tensor summed_visits(const Tensor& gate_up_S2F, const ExpertVisits& visits, const Tensor& weight_TK,
                     const Tensor& down) {
  const Device& device = kernels_for(gate_up_S2F);
  const Tensor out_SH =
      device.grouped_linear(device.swiglu(gate_up_S2F), by_expert(down, visits), visits.starts);
  return device.sum_visits(out_SH, visits.place_TK, weight_TK);
}

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TH, const ExpertVisits& visits,
                        const Tensor& weight_TK, const ExpertStack& stack) {
    const Tensor gate_up_S2F = gate_up_of(x_TH, visits, stack.gate_up.value);
    ctx->save_for_backward({x_TH, weight_TK, gate_up_S2F});
    ctx->saved_data["starts"] = visits.starts;
    ctx->saved_data["token"] = visits.token_S;
    ctx->saved_data["place"] = visits.place_TK;
    ctx->saved_data["gate_up"] = stack.gate_up.value;
    ctx->saved_data["gate_up_grad"] = stack.gate_up.grad;
    ctx->saved_data["down"] = stack.down.value;
    ctx->saved_data["down_grad"] = stack.down.grad;
    return summed_visits(gate_up_S2F, visits, weight_TK, stack.down.value);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x_TH = saved[0], &weight_TK = saved[1], &gate_up_S2F = saved[2];
    const auto stored = [&](const char* name) { return ctx->saved_data[name].toTensor(); };
    const ExpertVisits visits{ctx->saved_data["starts"].toIntVector(), stored("token"),
                              stored("place")};
    const auto stack = [&](const char* name) { return by_expert(stored(name), visits); };
    const Device& device = kernels_for(x_TH);
    const auto type = x_TH.scalar_type(), wide = weight_TK.scalar_type();

    // Of what a visit returns, before its weight.
    const Tensor dout_SH = grads[0].contiguous().index_select(0, visits.token_S);
    const Tensor dgated_SF =
        device.grouped_input_grad(dout_SH, stack("down"), visits.starts).to(wide);
    const Tensor gated_SF = device.swiglu(gate_up_S2F).to(wide);
    const Tensor weight_S1 = weight_of_visits(weight_TK, visits.place_TK);
    const Tensor dweight_TK = (dgated_SF * gated_SF)
                                  .sum(1)
                                  .index_select(0, visits.place_TK.view({-1}))
                                  .view(weight_TK.sizes());
    if (const Tensor grad = stack("down_grad"); grad.defined()) {
      device.add_grouped_weight_grad_(grad, dout_SH, (gated_SF * weight_S1).to(type),
                                      visits.starts);
    }
    const Tensor dgate_up_S2F =
        device.swiglu_backward((dgated_SF * weight_S1).to(type), gate_up_S2F);
    if (const Tensor grad = stack("gate_up_grad"); grad.defined()) {
      device.add_grouped_weight_grad_(grad, dgate_up_S2F, x_TH.index_select(0, visits.token_S),
                                      visits.starts);
    }
    const Tensor dx_SH = device.grouped_input_grad(dgate_up_S2F, stack("gate_up"), visits.starts);
    return {device.sum_visits(dx_SH, visits.place_TK, {}), Tensor(), dweight_TK, Tensor()};
  }
};

}  // namespace

Tensor experts(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& weight_TK,
               const ExpertStack& stack) {
  const TraceRange range("experts");
  check(visits.num_visits() == weight_TK.numel(), "every visit has a weight");
  check(weight_TK.scalar_type() == accumulator_of(x_TH),
        "weights of visits are float32, or float64 for float64");
  if (at::GradMode::is_enabled() && (x_TH.requires_grad() || weight_TK.requires_grad()))
    return Experts::apply(x_TH, visits, weight_TK, stack);
  return summed_visits(gate_up_of(x_TH, visits, stack.gate_up.value), visits, weight_TK,
                       stack.down.value);
}

}  // namespace slime::kernels
