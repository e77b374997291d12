#include "kernels/adapter_pairs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "core/error.h"
#include "core/splitmix64.h"

namespace slime::kernels {
namespace {

/// The device that these are a part of.
template <typename Part>
const Device& whole(const Part& part) {
  return dynamic_cast<const Device&>(part);
}

/// Of the pass, the same in its backward; undefined: nothing is dropped.
Tensor kept_of(const Tensor& x_TI, const LowRankPair& pair, const AdapterRows& rows,
               uint64_t pass) {
  if (pass == 0 || rows.dropout == 0) return {};
  const uint64_t key = splitmix64(splitmix64(rows.seed ^ pass) ^ pair.number);
  const at::Generator generator = at::detail::createCPUGenerator(key);
  // Made on the CPU, so that every device drops the same numbers.
  return at::empty(x_TI.sizes(), at::dtype(accumulator_of(x_TI)))
      .bernoulli_(1 - rows.dropout, generator)
      .div_(1 - rows.dropout)
      .to(x_TI.device());
}

Tensor dropped(const Tensor& x_TI, const Tensor& kept_TI) {
  return kept_TI.defined() ? (x_TI * kept_TI).to(x_TI.scalar_type()) : x_TI;
}

}  // namespace

Tensor to_accumulator(const Tensor& x) { return x.to(accumulator_of(x)); }

Tensor times_a(const Device& device, const Tensor& x_TI, const Tensor& a_RI) {
  if (x_TI.scalar_type() == accumulator_of(x_TI)) return device.linear(x_TI, a_RI, {});
  return device.logits(x_TI, a_RI.to(x_TI.scalar_type()));
}

Tensor times_b(const Device& device, const Tensor& h_TR, const Tensor& b_OR, double scale) {
  return device.linear(h_TR * scale, b_OR.contiguous(), {});
}

Tensor times_b_grad(const Device& device, const Tensor& dy_TO, const Tensor& b_OR, double scale) {
  return device.linear_input_grad((to_accumulator(dy_TO) * scale).contiguous(), b_OR.contiguous());
}

const std::vector<const LowRankPair*>& trained(const MatrixAdapters& adapters) {
  check(adapters.rows->takes_one() && adapters.rows->shares.front().slot == 0,
        "a pass with gradients has one adapter");
  return adapters.of_slot.front();
}

std::vector<PairRange> pair_ranges(const Matrix& matrix, int64_t slot) {
  std::vector<PairRange> all;
  const int64_t first = matrix.adapter_row, last = first + matrix.outputs();
  for (const LowRankPair* pair : matrix.adapters->of_slot[static_cast<size_t>(slot)]) {
    const int64_t begin = std::max(first, pair->begin), end = std::min(last, pair->end);
    if (begin < end) all.push_back({pair, begin - first, begin - pair->begin, end - begin});
  }
  return all;
}

std::vector<PairRange> trained_ranges(const Matrix& matrix) {
  trained(*matrix.adapters);  // checks
  return pair_ranges(matrix, 0);
}

Tensor LayerKernels::add_pairs(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                               at::ScalarType precision) const {
  const Device& device = whole(*this);
  const AdapterRows& rows = *weight_OI.adapters->rows;
  for (const AdapterRows::Share& share : rows.shares) {
    if (share.slot < 0) continue;
    const Tensor x =
        (share.row_S.defined() ? x_TI.index_select(0, share.row_S) : x_TI).contiguous();
    if (x.size(0) == 0) continue;
    for (const PairRange& range : pair_ranges(weight_OI, share.slot)) {
      const LowRankPair& pair = *range.pair;
      const Tensor kept = kept_of(x, pair, rows, weight_OI.adapter_pass);
      const Tensor addition = times_b(device, times_a(device, dropped(x, kept), pair.a.value),
                                      range.of_b(pair.b.value), pair.scale);
      const Tensor y = range.of_matrix(y_TO);
      if (share.row_S.defined()) {
        y.index_add_(0, share.row_S, addition);
      } else {
        y.add_(addition);
      }
    }
  }
  return y_TO.to(precision);
}

Tensor LayerKernels::linear_with_pairs(const Tensor& x_TI, const Matrix& weight_OI,
                                       const Tensor& bias_O, Tensor* /*hidden*/) const {
  const Device& device = whole(*this);
  const Matrix base_OI = weight_OI.without_adapters();
  if (x_TI.scalar_type() == accumulator_of(x_TI)) {
    const Tensor y_TO = device.linear(x_TI, base_OI, bias_O);
    return device.add_pairs(y_TO, x_TI, weight_OI, y_TO.scalar_type());
  }
  Tensor y_TO = device.logits(x_TI, base_OI);
  if (bias_O.defined()) y_TO.add_(bias_O);
  return device.add_pairs(y_TO, x_TI, weight_OI, x_TI.scalar_type());
}

Tensor LayerKernels::gated_linear_with_pairs(const Tensor& x_TI, const Matrix& weight_2FI,
                                             const Tensor& bias_2F) const {
  return whole(*this).swiglu(linear_with_pairs(x_TI, weight_2FI, bias_2F, nullptr));
}

Tensor GradientKernels::pairs_backward(const Matrix& weight_OI, const Tensor& dy_TO,
                                       const Tensor& x_TI, const Tensor& /*hidden*/) const {
  const Device& device = whole(*this);
  device.add_pairs_weight_grad_(weight_OI, dy_TO, x_TI);
  Tensor dx_TI = device.linear_input_grad(dy_TO, weight_OI.without_adapters());
  device.add_pairs_input_grad_(dx_TI, dy_TO, weight_OI);
  return dx_TI;
}

void GradientKernels::add_pairs_input_grad_(const Tensor& dx_TI, const Tensor& dy_TO,
                                            const Matrix& weight_OI) const {
  const Device& device = whole(*this);
  const AdapterRows& rows = *weight_OI.adapters->rows;
  Tensor sum_TI = to_accumulator(dx_TI);
  for (const PairRange& range : trained_ranges(weight_OI)) {
    const LowRankPair& pair = *range.pair;
    const Tensor dh_TR =
        times_b_grad(device, range.of_matrix(dy_TO), range.of_b(pair.b.value), pair.scale);
    const Tensor part_TI = linear_input_grad(dh_TR, pair.a.value);
    const Tensor kept_TI = kept_of(dx_TI, pair, rows, weight_OI.adapter_pass);
    sum_TI.add_(kept_TI.defined() ? part_TI * kept_TI : part_TI);
  }
  dx_TI.copy_(sum_TI);
}

void GradientKernels::add_pairs_weight_grad_(const Matrix& weight_OI, const Tensor& dy_TO,
                                             const Tensor& x_TI) const {
  const Device& device = whole(*this);
  const AdapterRows& rows = *weight_OI.adapters->rows;
  for (const PairRange& range : trained_ranges(weight_OI)) {
    const LowRankPair& pair = *range.pair;
    if (!pair.a.grad.defined()) continue;
    const Tensor dy = range.of_matrix(dy_TO).contiguous();
    const Tensor x = dropped(x_TI, kept_of(x_TI, pair, rows, weight_OI.adapter_pass)).contiguous();
    const Tensor h_TR = times_a(device, x, pair.a.value);
    add_linear_weight_grad_(range.of_b(pair.b.grad), to_accumulator(dy), h_TR * pair.scale);
    add_linear_weight_grad_(pair.a.grad,
                            times_b_grad(device, dy, range.of_b(pair.b.value), pair.scale),
                            to_accumulator(x));
  }
}

}  // namespace slime::kernels
