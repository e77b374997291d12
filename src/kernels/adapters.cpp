#include "kernels/adapters.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "core/error.h"
#include "core/splitmix64.h"
#include "kernels/device.h"

namespace slime::kernels {
namespace {

Tensor wide(const Tensor& x) { return x.to(accumulator_of(x)); }

/// x A^T in the accumulation precision. A narrow x multiplies an A that is as narrow.
Tensor down(const Tensor& x_TI, const Tensor& a_RI) {
  const Device& device = kernels_for(x_TI);
  if (x_TI.scalar_type() == accumulator_of(x_TI)) return device.linear(x_TI, a_RI, {});
  return device.logits(x_TI, a_RI.to(x_TI.scalar_type()));
}

Tensor up(const Tensor& h_TR, const Tensor& b_OR, double scale) {
  return kernels_for(h_TR).linear(h_TR * scale, b_OR.contiguous(), {});
}

/// Gradient of x A^T, [T, R].
Tensor down_grad(const Tensor& dy_TO, const Tensor& b_OR, double scale) {
  return kernels_for(dy_TO).linear_input_grad((wide(dy_TO) * scale).contiguous(),
                                              b_OR.contiguous());
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

/// The only adapter of a pass with gradients.
const std::vector<const LowRankPair*>& trained(const MatrixAdapters& adapters) {
  check(adapters.rows->takes_one() && adapters.rows->shares.front().slot == 0,
        "a pass with gradients has one adapter");
  return adapters.of_slot.front();
}

bool has_bits_of_wide(const Tensor& x) { return x.scalar_type() == accumulator_of(x); }

/// Row ranges of the experts that some rows visit.
template <typename Visit>
void for_each_visited(const GroupStarts& starts, const Visit& visit) {
  check(!starts.is_on_device(), "adapters of experts need the starts on the host");
  for (size_t e = 0; e + 1 < starts.host.size(); ++e) {
    const int64_t begin = starts.host[e], size = starts.host[e + 1] - begin;
    if (size > 0) visit(static_cast<int64_t>(e), begin, size);
  }
}

Tensor of_expert(const Tensor& stack, const LowRankPair& pair, int64_t expert) {
  return stack.view({pair.experts, -1, stack.size(-1)}).select(0, expert);
}

}  // namespace

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
  const AdapterRows& rows = *weight_OI.adapters->rows;
  for (const AdapterRows::Share& share : rows.shares) {
    if (share.slot < 0) continue;
    const Tensor x =
        (share.row_S.defined() ? x_TI.index_select(0, share.row_S) : x_TI).contiguous();
    if (x.size(0) == 0) continue;
    for (const PairRange& range : pair_ranges(weight_OI, share.slot)) {
      const LowRankPair& pair = *range.pair;
      const Tensor kept = kept_of(x, pair, rows, weight_OI.adapter_pass);
      const Tensor addition =
          up(down(dropped(x, kept), pair.a.value), range.of_b(pair.b.value), pair.scale);
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

void GradientKernels::add_pairs_input_grad_(const Tensor& dx_TI, const Tensor& dy_TO,
                                            const Matrix& weight_OI) const {
  const AdapterRows& rows = *weight_OI.adapters->rows;
  Tensor sum_TI = wide(dx_TI);
  for (const PairRange& range : trained_ranges(weight_OI)) {
    const LowRankPair& pair = *range.pair;
    const Tensor dh_TR = down_grad(range.of_matrix(dy_TO), range.of_b(pair.b.value), pair.scale);
    const Tensor part_TI = linear_input_grad(dh_TR, pair.a.value);
    const Tensor kept_TI = kept_of(dx_TI, pair, rows, weight_OI.adapter_pass);
    sum_TI.add_(kept_TI.defined() ? part_TI * kept_TI : part_TI);
  }
  dx_TI.copy_(sum_TI);
}

void GradientKernels::add_pairs_weight_grad_(const Matrix& weight_OI, const Tensor& dy_TO,
                                             const Tensor& x_TI) const {
  const AdapterRows& rows = *weight_OI.adapters->rows;
  for (const PairRange& range : trained_ranges(weight_OI)) {
    const LowRankPair& pair = *range.pair;
    if (!pair.a.grad.defined()) continue;
    const Tensor dy = range.of_matrix(dy_TO).contiguous();
    const Tensor x = dropped(x_TI, kept_of(x_TI, pair, rows, weight_OI.adapter_pass)).contiguous();
    const Tensor h_TR = down(x, pair.a.value);
    add_linear_weight_grad_(range.of_b(pair.b.grad), wide(dy), h_TR * pair.scale);
    add_linear_weight_grad_(pair.a.grad, down_grad(dy, range.of_b(pair.b.value), pair.scale),
                            wide(x));
  }
}

AdapterRows AdapterRows::of(const Tensor& row_T) const {
  if (takes_one()) return *this;
  AdapterRows picked = *this;
  picked.shares.clear();
  for (const Share& share : shares) {
    const Tensor is_of_share = at::isin(row_T, share.row_S);
    picked.shares.push_back({share.slot, is_of_share.nonzero().squeeze(1)});
  }
  return picked;
}

MatrixParam in_this_pass(const MatrixParam& weight) {
  MatrixParam numbered = weight;
  if (weight.matrix.adapters != nullptr && weight.matrix.adapters->rows->dropout > 0)
    numbered.matrix.adapter_pass = weight.matrix.adapters->rows->pass;
  return numbered;
}

Tensor adapted_linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O) {
  const Device& device = kernels_for(x_TI);
  if (weight_OI.adapters == nullptr) return device.linear(x_TI, weight_OI, bias_O);
  const Matrix base_OI = weight_OI.without_adapters();
  if (!adds(weight_OI.adapters)) return device.linear(x_TI, base_OI, bias_O);
  if (has_bits_of_wide(x_TI)) {
    const Tensor y_TO = device.linear(x_TI, base_OI, bias_O);
    return device.add_pairs(y_TO, x_TI, weight_OI, y_TO.scalar_type());
  }
  Tensor y_TO = device.logits(x_TI, base_OI);
  if (bias_O.defined()) y_TO.add_(bias_O);
  return device.add_pairs(y_TO, x_TI, weight_OI, x_TI.scalar_type());
}

void adapted_linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                         const Tensor& bias_O) {
  if (weight_OI.adapters == nullptr)
    return kernels_for(x_TI).linear_into(y_TO, x_TI, weight_OI, bias_O);
  y_TO.copy_(adapted_linear(x_TI, weight_OI, bias_O));
}

Tensor adapted_gated_linear(const Tensor& x_TI, const Matrix& weight_2FI, const Tensor& bias_2F) {
  const Device& device = kernels_for(x_TI);
  if (adds(weight_2FI.adapters)) return device.swiglu(adapted_linear(x_TI, weight_2FI, bias_2F));
  return device.gated_linear(x_TI, weight_2FI.without_adapters(), bias_2F);
}

Tensor adapted_logits(const Tensor& x_TI, const Matrix& weight_OI) {
  const Device& device = kernels_for(x_TI);
  if (weight_OI.adapters == nullptr) return device.logits(x_TI, weight_OI);
  const Tensor y_TO = device.logits(x_TI, weight_OI.without_adapters());
  if (!adds(weight_OI.adapters)) return y_TO;
  return device.add_pairs(y_TO, x_TI, weight_OI, y_TO.scalar_type());
}

Tensor adapted_input_grad(const Tensor& dy_TO, const Matrix& weight_OI) {
  const Device& device = kernels_for(dy_TO);
  if (weight_OI.adapters == nullptr) return device.linear_input_grad(dy_TO, weight_OI);
  const Tensor dx_TI = device.linear_input_grad(dy_TO, weight_OI.without_adapters());
  if (!adds(weight_OI.adapters)) return dx_TI;
  device.add_pairs_input_grad_(dx_TI, dy_TO, weight_OI);
  return dx_TI;
}

void adapted_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO, const Matrix& weight_OI) {
  if (weight_OI.adapters == nullptr)
    return kernels_for(dy_TO).linear_input_grad_into(dx_TI, dy_TO, weight_OI);
  dx_TI.copy_(adapted_input_grad(dy_TO, weight_OI));
}

void add_adapted_weight_grad_(const MatrixParam& weight_OI, const Tensor& dy_TO,
                              const Tensor& x_TI) {
  const Device& device = kernels_for(dy_TO);
  if (weight_OI.grad.defined()) device.add_linear_weight_grad_(weight_OI.grad, dy_TO, x_TI);
  const Matrix& matrix = weight_OI.matrix;
  if (!adds(matrix.adapters) || dy_TO.size(0) == 0) return;
  device.add_pairs_weight_grad_(matrix, dy_TO, x_TI);
}

void add_grouped_pairs_(const Tensor& y_SO, const Tensor& x_SI, const MatrixAdapters& adapters,
                        const AdapterRows& rows, const GroupStarts& starts) {
  if (!rows.is_on) return;
  for (const AdapterRows::Share& share : rows.shares) {
    if (share.slot < 0) continue;
    for (const LowRankPair* each : adapters.of_slot[static_cast<size_t>(share.slot)]) {
      const LowRankPair& pair = *each;
      for_each_visited(starts, [&](int64_t e, int64_t begin, int64_t size) {
        Tensor row_S;
        if (share.row_S.defined()) {
          const Tensor inside = (share.row_S >= begin).logical_and(share.row_S < begin + size);
          row_S = share.row_S.masked_select(inside);
          if (row_S.numel() == 0) return;
        }
        const Tensor x = row_S.defined() ? x_SI.index_select(0, row_S)
                                         : x_SI.narrow(0, begin, size).contiguous();
        const Tensor addition = up(down(x, of_expert(pair.a.value, pair, e)),
                                   of_expert(pair.b.value, pair, e), pair.scale)
                                    .to(y_SO.scalar_type());
        const Tensor y = y_SO.narrow(1, pair.begin, pair.end - pair.begin);
        if (row_S.defined()) {
          y.index_add_(0, row_S, addition);
        } else {
          y.narrow(0, begin, size).add_(addition);
        }
      });
    }
  }
}

void add_grouped_pairs_input_grad_(const Tensor& dx_SI, const Tensor& dy_SO,
                                   const MatrixAdapters& adapters, const GroupStarts& starts) {
  if (!adds(&adapters)) return;
  for (const LowRankPair* each : trained(adapters)) {
    const LowRankPair& pair = *each;
    for_each_visited(starts, [&](int64_t e, int64_t begin, int64_t size) {
      const Tensor dy = dy_SO.narrow(0, begin, size).narrow(1, pair.begin, pair.end - pair.begin);
      const Tensor dh = down_grad(dy, of_expert(pair.b.value, pair, e), pair.scale);
      dx_SI.narrow(0, begin, size)
          .add_(kernels_for(dh)
                    .linear_input_grad(dh, of_expert(pair.a.value, pair, e))
                    .to(dx_SI.scalar_type()));
    });
  }
}

void add_grouped_pairs_grad_(const MatrixAdapters& adapters, const Tensor& dy_SO,
                             const Tensor& x_SI, const GroupStarts& starts) {
  if (!adds(&adapters)) return;
  for (const LowRankPair* each : trained(adapters)) {
    const LowRankPair& pair = *each;
    if (!pair.a.grad.defined()) continue;
    for_each_visited(starts, [&](int64_t e, int64_t begin, int64_t size) {
      const Tensor dy =
          dy_SO.narrow(0, begin, size).narrow(1, pair.begin, pair.end - pair.begin).contiguous();
      const Tensor x = x_SI.narrow(0, begin, size).contiguous();
      const Device& device = kernels_for(dy);
      const Tensor b = of_expert(pair.b.value, pair, e);
      device.add_linear_weight_grad_(of_expert(pair.b.grad, pair, e), wide(dy),
                                     down(x, of_expert(pair.a.value, pair, e)) * pair.scale);
      device.add_linear_weight_grad_(of_expert(pair.a.grad, pair, e), down_grad(dy, b, pair.scale),
                                     wide(x));
    });
  }
}

void add_embedded_pairs_(const Tensor& y_TH, const Tensor& ids_T, const MatrixAdapters& adapters) {
  if (!adds(&adapters)) return;
  for (const AdapterRows::Share& share : adapters.rows->shares) {
    if (share.slot < 0) continue;
    for (const LowRankPair* each : adapters.of_slot[static_cast<size_t>(share.slot)]) {
      const LowRankPair& pair = *each;
      const Tensor ids = share.row_S.defined() ? ids_T.index_select(0, share.row_S) : ids_T;
      if (ids.numel() == 0) continue;
      const Tensor h_TR = pair.a.value.index_select(1, ids).t().contiguous();
      const Tensor addition = up(h_TR, pair.b.value, pair.scale).to(y_TH.scalar_type());
      if (share.row_S.defined()) {
        Tensor(y_TH).index_add_(0, share.row_S, addition);
      } else {
        y_TH.add_(addition);
      }
    }
  }
}

void add_embedded_pairs_grad_(const MatrixAdapters& adapters, const Tensor& dy_TH,
                              const Tensor& ids_T) {
  if (!adds(&adapters)) return;
  for (const LowRankPair* each : trained(adapters)) {
    const LowRankPair& pair = *each;
    if (!pair.a.grad.defined()) continue;
    const Tensor dy = wide(dy_TH).contiguous();
    const Tensor h_TR = pair.a.value.index_select(1, ids_T).t().contiguous();
    kernels_for(dy).add_linear_weight_grad_(pair.b.grad, dy, h_TR * pair.scale);
    Tensor(pair.a.grad).index_add_(1, ids_T, down_grad(dy, pair.b.value, pair.scale).t());
  }
}

}  // namespace slime::kernels
