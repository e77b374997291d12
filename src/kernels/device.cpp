#include "kernels/device.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "kernels/soft_cap.h"

namespace slime::kernels {
namespace {

/// Calls fn(expert, first row, number of rows) for the experts that have rows.
template <typename Fn>
void for_each_expert(const GroupStarts& groups, const Fn& fn) {
  check(!groups.is_on_device(), "this device has no grouped products of its own");
  const std::vector<int64_t>& starts = groups.host;
  for (size_t e = 0; e + 1 < starts.size(); ++e) {
    const int64_t rows = starts[e + 1] - starts[e];
    if (rows > 0) fn(static_cast<int64_t>(e), starts[e], rows);
  }
}

}  // namespace

Tensor LayerKernels::latent_attention_in_pages(const Tensor& /*heads_TE*/,
                                               const Tensor& /*rotary_row_T*/,
                                               const Tensor& /*cos_PR*/, const Tensor& /*sin_PR*/,
                                               const std::vector<Segment>& /*segments*/,
                                               const RotaryShape& /*heads*/,
                                               const TreeAttentionShape& /*shape*/) const {
  throw BugError("this device has no attention with the bits of the engine's");
}

Tensor LayerKernels::tree_attention_in_pages(const Tensor& /*heads_TE*/,
                                             const std::vector<Segment>& /*segments*/,
                                             const RotaryShape& /*heads*/,
                                             const TreeAttentionShape& /*shape*/,
                                             const Tensor& /*sinks_N*/,
                                             Tensor& /*logsumexp_TN*/) const {
  throw BugError("this device has no attention with the bits of the engine's");
}

Tensor LayerKernels::gated_linear(const Tensor& x_TI, const Matrix& weight_2FI,
                                  const Tensor& bias_2F) const {
  return swiglu(linear(x_TI, weight_2FI, bias_2F));
}

Tensor LayerKernels::grouped_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                                    const GroupStarts& starts) const {
  const Tensor y_SO = at::empty({x_SI.size(0), weight_EOI.outputs()}, x_SI.options());
  for_each_expert(starts, [&](int64_t expert, int64_t begin, int64_t rows) {
    y_SO.narrow(0, begin, rows)
        .copy_(linear(x_SI.narrow(0, begin, rows), weight_EOI.of_expert(expert), {}));
  });
  return y_SO;
}

Tensor LayerKernels::grouped_gated_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                                          const GroupStarts& starts) const {
  return swiglu(grouped_linear(x_SI, weight_EOI, starts));
}

Tensor GradientKernels::grouped_input_grad(const Tensor& dy_SO, const Matrix& weight_EOI,
                                           const GroupStarts& starts) const {
  const Tensor dx_SI = at::empty({dy_SO.size(0), weight_EOI.inputs()}, dy_SO.options());
  for_each_expert(starts, [&](int64_t expert, int64_t begin, int64_t rows) {
    dx_SI.narrow(0, begin, rows)
        .copy_(linear_input_grad(dy_SO.narrow(0, begin, rows), weight_EOI.of_expert(expert)));
  });
  return dx_SI;
}

void GradientKernels::add_grouped_weight_grad_(Tensor grad_EOI, const Tensor& dy_SO,
                                               const Tensor& x_SI,
                                               const GroupStarts& starts) const {
  for_each_expert(starts, [&](int64_t expert, int64_t begin, int64_t rows) {
    add_linear_weight_grad_(grad_EOI.select(0, expert), dy_SO.narrow(0, begin, rows),
                            x_SI.narrow(0, begin, rows));
  });
}

Tensor LayerKernels::sum_visits(const Tensor& rows_SH, const Tensor& place_TK,
                                const Tensor& weight_TK) const {
  const Tensor sum_TH = at::zeros({place_TK.size(0), rows_SH.size(1)},
                                  rows_SH.options().dtype(accumulator_of(rows_SH)));
  for (int64_t k = 0; k < place_TK.size(1); ++k) {
    const Tensor rows_TH = rows_SH.index_select(0, place_TK.select(1, k));
    if (weight_TK.defined()) {
      sum_TH.addcmul_(rows_TH.to(sum_TH.scalar_type()), weight_TK.select(1, k).unsqueeze(1));
    } else {
      sum_TH.add_(rows_TH);
    }
  }
  return sum_TH.to(rows_SH.scalar_type());
}

void LayerKernels::linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                               const Tensor& bias_O) const {
  y_TO.copy_(linear(x_TI, weight_OI, bias_O));
}

void GradientKernels::linear_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO,
                                             const Matrix& weight_OI) const {
  dx_TI.copy_(linear_input_grad(dy_TO, weight_OI));
}

Tensor LayerKernels::sum(const Tensor& a, const Tensor& b) const { return a + b; }

Tensor LayerKernels::add_rms_norm(const Tensor& x_TH, const Tensor& update_TH,
                                  const Tensor& weight_H, double eps, Tensor& sum_TH) const {
  sum_TH = sum(x_TH, update_TH);
  return rms_norm(sum_TH, weight_H, eps);
}

Tensor Device::add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH,
                                     const Tensor& sum_TH, const Tensor& weight_H, double eps,
                                     Tensor grad_H) const {
  return sum(rms_norm_backward(dy_TH, sum_TH, weight_H, eps, std::move(grad_H)), dsum_TH);
}

void LayerKernels::soft_cap_(Tensor x, double cap) const { kernels::soft_cap_(std::move(x), cap); }

Tensor GradientKernels::softmax_gradient(const Tensor& logits_RV, const Tensor& target_R,
                                         const LogitForm& form, const Tensor& logsumexp_R,
                                         const Tensor& entropy_R, const Tensor& dlogprob_R,
                                         const Tensor& dentropy_R, at::ScalarType precision) const {
  const Tensor slope_RV = form.cap > 0 ? soft_cap_slope(logits_RV, form.cap) : Tensor();
  softmax_backward_(logits_RV, target_R, form.temperature, logsumexp_R, entropy_R, dlogprob_R,
                    dentropy_R);
  if (slope_RV.defined()) logits_RV.mul_(slope_RV);
  return logits_RV.to(precision);
}

}  // namespace slime::kernels
