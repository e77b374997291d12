#include "kernels/experts.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/clamped_swiglu.h"
#include "kernels/device.h"
#include "kernels/kept_param.h"
#include "kernels/routed_experts.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// One of the two matrices of each expert.
struct Matrices {
  Matrix weight;                             // [E, outputs, inputs], or turned; without adapters
  const MatrixAdapters* adapters = nullptr;  // null: none now
  Tensor grad;                               // likewise
  Tensor bias_EB, bias_grad_EB;  // of the outputs from bias_begin on; undefined without biases
  int64_t bias_begin = 0;
  bool is_turned = false;
};

/// The experts of one call: their matrices, and which rows are whose. `token_S`: of which row of the pass
/// each is; undefined where a pass has one adapter.
class Group {
 public:
  Group(const ExpertStack& stack, const GroupStarts& starts, const Tensor& token_S = {})
      : starts_(starts),
        is_in_turns_(stack.is_in_turns),
        limit_(stack.swiglu_limit),
        gate_up_(matrices(stack.gate_up, stack.gate_up_bias, 0)),
        down_(matrices(stack.down, stack.down_bias, stack.down_bias_begin)) {
    for (const Matrices* m : {&gate_up_, &down_}) {
      if (m->adapters == nullptr || rows_) continue;
      check(token_S.defined() || m->adapters->rows->takes_one(),
            "rows of experts on other ranks have one adapter");
      rows_ = token_S.defined() ? m->adapters->rows->of(token_S) : *m->adapters->rows;
    }
  }

  const Matrices& gate_up() const { return gate_up_; }
  const Matrices& down() const { return down_; }

  Tensor product(const Tensor& x_SI, const Matrices& m) const {
    const Device& device = kernels_for(x_SI);
    const Tensor y_SO = m.is_turned ? device.grouped_input_grad(x_SI, m.weight, starts_)
                                    : device.grouped_linear(x_SI, m.weight, starts_);
    if (m.bias_EB.defined()) biased(y_SO, m).add_(bias_of_rows(m, x_SI.size(0)));
    if (m.adapters != nullptr) add_grouped_pairs_(y_SO, x_SI, *m.adapters, *rows_, starts_);
    return y_SO;
  }

  Tensor gated_product(const Tensor& x_SI) const {
    if (gate_up_.is_turned || gate_up_.bias_EB.defined() || gate_up_.adapters != nullptr)
      return gated(product(x_SI, gate_up_));
    return kernels_for(x_SI).grouped_gated_linear(x_SI, gate_up_.weight, starts_);
  }

  /// The outputs that have a bias here.
  static Tensor biased(const Tensor& y_SO, const Matrices& m) {
    return y_SO.narrow(1, m.bias_begin, m.bias_EB.size(1));
  }

  Tensor bias_of_rows(const Matrices& m, int64_t num_rows) const {
    return m.bias_EB.index_select(0, expert_of_rows(num_rows));
  }

  Tensor input_grad(const Tensor& dy_SO, const Matrices& m) const {
    const Device& device = kernels_for(dy_SO);
    const Tensor dx_SI = m.is_turned ? device.grouped_linear(dy_SO, m.weight, starts_)
                                     : device.grouped_input_grad(dy_SO, m.weight, starts_);
    if (m.adapters != nullptr) add_grouped_pairs_input_grad_(dx_SI, dy_SO, *m.adapters, starts_);
    return dx_SI;
  }

  void add_weight_grad(const Tensor& dy_SO, const Tensor& x_SI, const Matrices& m) const {
    if (m.adapters != nullptr) add_grouped_pairs_grad_(*m.adapters, dy_SO, x_SI, starts_);
    if (!m.grad.defined()) return;
    const Device& device = kernels_for(dy_SO);
    if (m.is_turned) return device.add_grouped_weight_grad_(m.grad, x_SI, dy_SO, starts_);
    device.add_grouped_weight_grad_(m.grad, dy_SO, x_SI, starts_);
  }

  void add_bias_grad(const Tensor& dy_SO, const Matrices& m) const {
    if (!m.bias_grad_EB.defined()) return;
    kernels_for(dy_SO).add_rows_(m.bias_grad_EB, expert_of_rows(dy_SO.size(0)),
                                 biased(dy_SO, m).to(m.bias_grad_EB.scalar_type()));
  }

  Tensor gated(const Tensor& gate_up_S2F) const {
    return is_in_turns_ ? clamped_swiglu(gate_up_S2F, limit_)
                        : kernels_for(gate_up_S2F).swiglu(gate_up_S2F);
  }

  Tensor gated_backward(const Tensor& dy_SF, const Tensor& gate_up_S2F) const {
    return is_in_turns_ ? clamped_swiglu_backward(dy_SF, gate_up_S2F, limit_)
                        : kernels_for(gate_up_S2F).swiglu_backward(dy_SF, gate_up_S2F);
  }

  GatedGradients gated_gradients(const Tensor& dgated_SF, const Tensor& gate_up_S2F,
                                 const Tensor& weight_S1) const {
    if (const ExpertKernels* fused = is_in_turns_ ? nullptr : expert_kernels_for(dgated_SF)) {
      if (auto out = fused->gated_gradients(dgated_SF, gate_up_S2F, weight_S1.squeeze(1)))
        return std::move(*out);
    }
    const auto type = gate_up_S2F.scalar_type(), wide = weight_S1.scalar_type();
    const Tensor wide_dgated_SF = dgated_SF.to(wide), gated_SF = gated(gate_up_S2F).to(wide);
    return {gated_backward((wide_dgated_SF * weight_S1).to(type), gate_up_S2F),
            (gated_SF * weight_S1).to(type), (wide_dgated_SF * gated_SF).sum(1)};
  }

 private:
  Matrices matrices(const MatrixParam& weight, const Param& bias, int64_t bias_begin) const {
    const Matrix stack = weight.matrix.stacked(num_experts()).without_adapters();
    return {.weight = stack,
            .adapters = adds(weight.matrix.adapters) ? weight.matrix.adapters : nullptr,
            .grad = weight.grad.defined() ? weight.grad.view(stack.values.sizes()) : Tensor(),
            .bias_EB = bias.value,
            .bias_grad_EB = bias.grad,
            .bias_begin = bias_begin,
            .is_turned = is_in_turns_};
  }

  Tensor expert_of_rows(int64_t num_rows) const {
    const Tensor starts_E1 = starts_.is_on_device() ? starts_.device_E1.to(at::kLong)
                                                    : at::tensor(starts_.host, at::kLong);
    return at::searchsorted(starts_E1.narrow(0, 1, num_experts()),
                            at::arange(num_rows, starts_E1.options()),
                            /*out_int32=*/false, /*right=*/true);
  }

  int64_t num_experts() const {
    return (starts_.is_on_device() ? starts_.device_E1.numel()
                                   : static_cast<int64_t>(starts_.host.size())) -
           1;
  }

  const GroupStarts& starts_;
  bool is_in_turns_;
  double limit_;
  Matrices gate_up_;
  Matrices down_;
  std::optional<AdapterRows> rows_;  // of adapters, where there are some
};

/// Rows of the tokens, as their visits stand.
Tensor rows_of(const Tensor& x_TH, const Tensor& token_S) { return x_TH.index_select(0, token_S); }

void check_weights(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& weight_TK) {
  check(visits.num_visits() == weight_TK.numel(), "every visit has a weight");
  check(weight_TK.scalar_type() == accumulator_of(x_TH),
        "weights of visits are float32, or float64 for float64");
}

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TH, const ExpertVisits& visits,
                        const Tensor& weight_TK, const ExpertStack& stack) {
    const ExpertRows rows =
        expert_rows(rows_of(x_TH, visits.token_S), visits.starts, stack, visits.token_S);
    ctx->save_for_backward({x_TH, weight_TK, rows.gate_up_S2F});
    ctx->saved_data["starts"] = visits.starts.host;
    ctx->saved_data["device_starts"] = visits.starts.device_E1;
    ctx->saved_data["token"] = visits.token_S;
    ctx->saved_data["place"] = visits.place_TK;
    keep(ctx, "gate_up", stack.gate_up);
    keep(ctx, "down", stack.down);
    keep(ctx, "gate_up_bias", stack.gate_up_bias);
    keep(ctx, "down_bias", stack.down_bias);
    ctx->saved_data["is_in_turns"] = stack.is_in_turns;
    ctx->saved_data["down_bias_begin"] = stack.down_bias_begin;
    ctx->saved_data["swiglu_limit"] = stack.swiglu_limit;
    return sum_of_visits(rows.out_SH, visits.place_TK, weight_TK);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x_TH = saved[0], &weight_TK = saved[1], &gate_up_S2F = saved[2];
    const ExpertStack stack{kept_matrix_param(ctx, "gate_up"),
                            kept_matrix_param(ctx, "down"),
                            ctx->saved_data["is_in_turns"].toBool(),
                            kept_param(ctx, "gate_up_bias"),
                            kept_param(ctx, "down_bias"),
                            ctx->saved_data["swiglu_limit"].toDouble(),
                            ctx->saved_data["down_bias_begin"].toInt()};
    GroupStarts starts(ctx->saved_data["device_starts"].toTensor());
    starts.host = ctx->saved_data["starts"].toIntVector();
    const Tensor token_S = ctx->saved_data["token"].toTensor();
    const Tensor place_TK = ctx->saved_data["place"].toTensor();
    const auto [dx_SH, dweight_S] = expert_rows_backward(
        rows_of(grads[0].contiguous(), token_S), [&] { return rows_of(x_TH, token_S); },
        gate_up_S2F, weight_of_visits(weight_TK, place_TK), starts, stack);
    return {sum_of_visits(dx_SH, place_TK, {}), Tensor(),
            dweight_S.index_select(0, place_TK.view({-1})).view(weight_TK.sizes()), Tensor()};
  }
};

}  // namespace

ExpertRows expert_rows(const Tensor& x_SH, const GroupStarts& starts, const ExpertStack& stack,
                       const Tensor& token_S) {
  const Group group(stack, starts, token_S);
  const Tensor gate_up_S2F = group.product(x_SH, group.gate_up());
  return {group.product(group.gated(gate_up_S2F), group.down()), gate_up_S2F};
}

ExpertRowGradients expert_rows_backward(const Tensor& dout_SH, const std::function<Tensor()>& x_SH,
                                        const Tensor& gate_up_S2F, const Tensor& weight_S,
                                        const GroupStarts& starts, const ExpertStack& stack) {
  const Group group(stack, starts);
  const Tensor weight_S1 = weight_S.unsqueeze(1);
  const GatedGradients through =
      group.gated_gradients(group.input_grad(dout_SH, group.down()), gate_up_S2F, weight_S1);
  if (stack.down_bias.defined()) {
    const Tensor wide_SH = dout_SH.to(weight_S.scalar_type());
    through.dweight_S.add_(
        (Group::biased(wide_SH, group.down()) * group.bias_of_rows(group.down(), dout_SH.size(0)))
            .sum(1));
    group.add_bias_grad(wide_SH * weight_S1, group.down());
  }
  group.add_weight_grad(dout_SH, through.weighted_SF, group.down());
  const Tensor& dgate_up_S2F = through.dgate_up_S2F;
  group.add_weight_grad(dgate_up_S2F, x_SH(), group.gate_up());
  group.add_bias_grad(dgate_up_S2F, group.gate_up());
  return {group.input_grad(dgate_up_S2F, group.gate_up()), through.dweight_S};
}

Tensor sum_of_visits(const Tensor& rows_SH, const Tensor& place_TK, const Tensor& weight_TK) {
  return kernels_for(rows_SH).sum_visits(rows_SH, place_TK, weight_TK);
}

Tensor weight_of_visits(const Tensor& weight_TK, const Tensor& place_TK) {
  const Tensor weight_S = at::empty({weight_TK.numel()}, weight_TK.options());
  return weight_S.index_copy_(0, place_TK.view({-1}), weight_TK.reshape({-1}));
}

Tensor inferred_experts(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& weight_TK,
                        const ExpertStack& stack) {
  const TraceRange range("experts");
  check_weights(x_TH, visits, weight_TK);
  check(!at::GradMode::is_enabled(), "gates and ups that have a gradient are kept");
  const Group group(stack, visits.starts, visits.token_S);
  const Tensor gated_SF = group.gated_product(rows_of(x_TH, visits.token_S));
  return sum_of_visits(group.product(gated_SF, group.down()), visits.place_TK, weight_TK);
}

Tensor experts(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& weight_TK,
               const ExpertStack& stack) {
  const TraceRange range("experts");
  check_weights(x_TH, visits, weight_TK);
  if (at::GradMode::is_enabled() && (x_TH.requires_grad() || weight_TK.requires_grad()))
    return Experts::apply(x_TH, visits, weight_TK, stack);
  const ExpertRows rows =
      expert_rows(rows_of(x_TH, visits.token_S), visits.starts, stack, visits.token_S);
  return sum_of_visits(rows.out_SH, visits.place_TK, weight_TK);
}

}  // namespace slime::kernels
