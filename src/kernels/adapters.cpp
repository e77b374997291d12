#include "kernels/adapters.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/adapter_pairs.h"
#include "kernels/device.h"

namespace slime::kernels {
namespace {

/// Row ranges of the experts that some rows visit.
template <typename Visit>
void for_each_visited(const GroupStarts& starts, const Visit& visit) {
  for (size_t e = 0; e + 1 < starts.host.size(); ++e) {
    const int64_t begin = starts.host[e], size = starts.host[e + 1] - begin;
    if (size > 0) visit(static_cast<int64_t>(e), begin, size);
  }
}

/// [E, ., .]
Tensor of_experts(const Tensor& factor, const LowRankPair& pair) {
  return factor.view({pair.experts, -1, factor.size(-1)});
}

Tensor of_expert(const Tensor& factor, const LowRankPair& pair, int64_t expert) {
  return of_experts(factor, pair).select(0, expert);
}

/// Whatever the step has: visit(pair, of_rows_that_take_it) for each pair of each slot, where the device alone knows
/// the slots of rows; the second one makes zeros of the others. `slot_T` undefined: all rows take the only share.
template <typename Visit>
void for_each_pair(const MatrixAdapters& adapters, const std::vector<AdapterRows::Share>& shares,
                   const Tensor& slot_T, const Visit& visit) {
  if (!slot_T.defined()) {
    check(shares.size() == 1 && !shares.front().row_S.defined(), "rows of a GPU have one adapter");
    if (shares.front().slot < 0) return;
    for (const LowRankPair* pair : adapters.of_slot[static_cast<size_t>(shares.front().slot)])
      visit(*pair, [](const Tensor& h_TR) { return h_TR; });
    return;
  }
  for (size_t slot = 0; slot < adapters.of_slot.size(); ++slot) {
    for (const LowRankPair* pair : adapters.of_slot[slot]) {
      visit(*pair, [&](const Tensor& h_TR) {
        return h_TR * (slot_T == static_cast<int64_t>(slot)).unsqueeze(1).to(h_TR.scalar_type());
      });
    }
  }
}

// All experts at once, where the device alone knows which rows are whose.

/// As times_a().
Tensor grouped_times_a(const Tensor& x_SI, const LowRankPair& pair, const GroupStarts& starts) {
  const Tensor a_ERI = of_experts(to_accumulator(pair.a.value.to(x_SI.scalar_type())), pair);
  return kernels_for(x_SI).grouped_linear(to_accumulator(x_SI).contiguous(), a_ERI, starts);
}

/// As times_b_grad(), of a range of outputs.
Tensor grouped_times_b_grad(const Tensor& dy_SO, const LowRankPair& pair,
                            const GroupStarts& starts) {
  const Tensor scaled_SO = (to_accumulator(dy_SO) * pair.scale).contiguous();
  return kernels_for(dy_SO).grouped_input_grad(scaled_SO, of_experts(pair.b.value, pair), starts);
}

void add_device_pairs_(const Tensor& y_SO, const Tensor& x_SI, const MatrixAdapters& adapters,
                       const AdapterRows& rows, const GroupStarts& starts) {
  for_each_pair(
      adapters, rows.shares, rows.slot_S,
      [&](const LowRankPair& pair, const auto& of_rows_that_take_it) {
        const Tensor h_SR = grouped_times_a(x_SI, pair, starts) * pair.scale;
        const Tensor addition_SO = kernels_for(x_SI).grouped_linear(
            of_rows_that_take_it(h_SR), of_experts(pair.b.value, pair), starts);
        y_SO.narrow(1, pair.begin, pair.end - pair.begin).add_(addition_SO.to(y_SO.scalar_type()));
      });
}

void add_device_pairs_input_grad_(const Tensor& dx_SI, const Tensor& dy_SO,
                                  const MatrixAdapters& adapters, const GroupStarts& starts) {
  for (const LowRankPair* pair : trained(adapters)) {
    const Tensor dy = dy_SO.narrow(1, pair->begin, pair->end - pair->begin);
    dx_SI.add_(kernels_for(dy_SO)
                   .grouped_input_grad(grouped_times_b_grad(dy, *pair, starts),
                                       of_experts(pair->a.value, *pair), starts)
                   .to(dx_SI.scalar_type()));
  }
}

void add_device_pairs_grad_(const MatrixAdapters& adapters, const Tensor& dy_SO, const Tensor& x_SI,
                            const GroupStarts& starts) {
  const Device& device = kernels_for(dy_SO);
  for (const LowRankPair* pair : trained(adapters)) {
    if (!pair->a.grad.defined()) continue;
    const Tensor dy = dy_SO.narrow(1, pair->begin, pair->end - pair->begin);
    device.add_grouped_weight_grad_(of_experts(pair->b.grad, *pair), to_accumulator(dy),
                                    grouped_times_a(x_SI, *pair, starts) * pair->scale, starts);
    device.add_grouped_weight_grad_(of_experts(pair->a.grad, *pair),
                                    grouped_times_b_grad(dy, *pair, starts), to_accumulator(x_SI),
                                    starts);
  }
}

}  // namespace

Tensor AdapterTiles::slots() const {
  const Tensor none = at::full({row_N.size(0) + 1}, -1, row_N.options().dtype(at::kLong));
  const Tensor slot_of_rows = slot_N.unsqueeze(1).expand({-1, kRows}).reshape({-1}).to(at::kLong);
  // Places without a row write behind the last one.
  const Tensor row = row_N.to(at::kLong);
  return none.scatter(0, row.masked_fill(row < 0, row.size(0)), slot_of_rows)
      .narrow(0, 0, row.size(0));
}

AdapterRows AdapterRows::of(const Tensor& row_T) const {
  if (takes_one()) return *this;
  AdapterRows picked = *this;
  picked.shares.clear();
  if (tiles.defined()) {
    picked.tiles = {};
    picked.slot_S = tiles.slots().index_select(0, row_T);
    return picked;
  }
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

Tensor adapted_linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                      Tensor* hidden) {
  const Device& device = kernels_for(x_TI);
  if (weight_OI.adapters == nullptr) return device.linear(x_TI, weight_OI, bias_O);
  const Matrix base_OI = weight_OI.without_adapters();
  if (!adds(weight_OI.adapters)) return device.linear(x_TI, base_OI, bias_O);
  return device.linear_with_pairs(x_TI, weight_OI, bias_O, hidden);
}

void adapted_linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                         const Tensor& bias_O) {
  if (weight_OI.adapters == nullptr)
    return kernels_for(x_TI).linear_into(y_TO, x_TI, weight_OI, bias_O);
  y_TO.copy_(adapted_linear(x_TI, weight_OI, bias_O));
}

Tensor adapted_gated_linear(const Tensor& x_TI, const Matrix& weight_2FI, const Tensor& bias_2F) {
  const Device& device = kernels_for(x_TI);
  if (adds(weight_2FI.adapters)) return device.gated_linear_with_pairs(x_TI, weight_2FI, bias_2F);
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

Tensor adapted_backward(const MatrixParam& weight_OI, const Tensor& dy_TO, const Tensor& x_TI,
                        const Tensor& hidden) {
  const Matrix& matrix = weight_OI.matrix;
  const Device& device = kernels_for(dy_TO);
  if (weight_OI.grad.defined()) device.add_linear_weight_grad_(weight_OI.grad, dy_TO, x_TI);
  if (adds(matrix.adapters) && dy_TO.size(0) > 0)
    return device.pairs_backward(matrix, dy_TO, x_TI, hidden);
  return device.linear_input_grad(dy_TO, matrix.without_adapters());
}

void add_grouped_pairs_(const Tensor& y_SO, const Tensor& x_SI, const MatrixAdapters& adapters,
                        const AdapterRows& rows, const GroupStarts& starts) {
  if (!rows.is_on) return;
  if (starts.is_on_device()) return add_device_pairs_(y_SO, x_SI, adapters, rows, starts);
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
        const Device& device = kernels_for(x);
        const Tensor addition =
            times_b(device, times_a(device, x, of_expert(pair.a.value, pair, e)),
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
  if (starts.is_on_device()) return add_device_pairs_input_grad_(dx_SI, dy_SO, adapters, starts);
  for (const LowRankPair* each : trained(adapters)) {
    const LowRankPair& pair = *each;
    for_each_visited(starts, [&](int64_t e, int64_t begin, int64_t size) {
      const Tensor dy = dy_SO.narrow(0, begin, size).narrow(1, pair.begin, pair.end - pair.begin);
      const Tensor dh =
          times_b_grad(kernels_for(dy), dy, of_expert(pair.b.value, pair, e), pair.scale);
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
  if (starts.is_on_device()) return add_device_pairs_grad_(adapters, dy_SO, x_SI, starts);
  for (const LowRankPair* each : trained(adapters)) {
    const LowRankPair& pair = *each;
    if (!pair.a.grad.defined()) continue;
    for_each_visited(starts, [&](int64_t e, int64_t begin, int64_t size) {
      const Tensor dy =
          dy_SO.narrow(0, begin, size).narrow(1, pair.begin, pair.end - pair.begin).contiguous();
      const Tensor x = x_SI.narrow(0, begin, size).contiguous();
      const Device& device = kernels_for(dy);
      const Tensor b = of_expert(pair.b.value, pair, e);
      device.add_linear_weight_grad_(
          of_expert(pair.b.grad, pair, e), to_accumulator(dy),
          times_a(device, x, of_expert(pair.a.value, pair, e)) * pair.scale);
      device.add_linear_weight_grad_(of_expert(pair.a.grad, pair, e),
                                     times_b_grad(kernels_for(dy), dy, b, pair.scale),
                                     to_accumulator(x));
    });
  }
}

void add_embedded_pairs_(const Tensor& y_TH, const Tensor& ids_T, const MatrixAdapters& adapters) {
  if (!adds(&adapters)) return;
  if (adapters.rows->tiles.defined()) {
    const Tensor slot_T = adapters.rows->tiles.slots().narrow(0, 0, ids_T.size(0));
    return for_each_pair(
        adapters, {}, slot_T, [&](const LowRankPair& pair, const auto& of_rows_that_take_it) {
          const Tensor h_TR = pair.a.value.index_select(1, ids_T).t().contiguous();
          y_TH.add_(times_b(kernels_for(h_TR), of_rows_that_take_it(h_TR), pair.b.value, pair.scale)
                        .to(y_TH.scalar_type()));
        });
  }
  for (const AdapterRows::Share& share : adapters.rows->shares) {
    if (share.slot < 0) continue;
    for (const LowRankPair* each : adapters.of_slot[static_cast<size_t>(share.slot)]) {
      const LowRankPair& pair = *each;
      const Tensor ids = share.row_S.defined() ? ids_T.index_select(0, share.row_S) : ids_T;
      if (ids.numel() == 0) continue;
      const Tensor h_TR = pair.a.value.index_select(1, ids).t().contiguous();
      const Tensor addition =
          times_b(kernels_for(h_TR), h_TR, pair.b.value, pair.scale).to(y_TH.scalar_type());
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
    const Tensor dy = to_accumulator(dy_TH).contiguous();
    const Tensor h_TR = pair.a.value.index_select(1, ids_T).t().contiguous();
    kernels_for(dy).add_linear_weight_grad_(pair.b.grad, dy, h_TR * pair.scale);
    kernels_for(dy).add_rows_(pair.a.grad.t(), ids_T,
                              times_b_grad(kernels_for(dy), dy, pair.b.value, pair.scale));
  }
}

}  // namespace slime::kernels
