/// CudaDevice's additions of adapters (kernels/cuda/products/low_rank.h).

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/low_rank_pairs.h"
#include "kernels/cuda/products/gated_product.h"
#include "kernels/cuda/products/low_rank.h"
#include "kernels/gpu/recorded_rows.h"

namespace slime::kernels::cuda {
namespace {

/// More rows than this have their splits added before the way up, where each block of outputs would add them.
constexpr int64_t kRowsOfSums = 64;

/// Rows of prompts and training, whose products are none of the recorded sizes of decode.
bool has_many_rows(const Tensor& x) { return x.size(0) > 256 && !is_recorded_size(x.size(0)); }

enum class Way { kForward, kBack };

/// Forward, x is multiplied by A and then by B; back, dy by B and then by A.
struct LowRankPlan {
  LowRankFactors down, up;
  int splits = 1;  // the most of a factor

  LowRankPlan(const std::vector<PairRange>& ranges, Way way) {
    for (const PairRange& range : ranges) {
      FactorsOfPair factors(range, down.ranks);
      LowRankFactor& first = way == Way::kForward ? factors.a : factors.b;
      LowRankFactor& second = way == Way::kForward ? factors.b : factors.a;
      first.splits = second.splits = first.splits_of_range();
      splits = std::max(splits, first.splits);
      down.of[down.count++] = first;
      up.of[up.count++] = second;
      down.ranks = up.ranks = down.ranks + first.rank;
    }
  }

  void forget_splits() {
    for (int i = 0; i < up.count; ++i) down.of[i].splits = up.of[i].splits = 1;
  }
};

/// Whether the kernels read rows of x, and pairs whose ranges of it begin and end at whole loads.
bool has_kernels(const Tensor& x, const std::vector<PairRange>& ranges) {
  const auto type = x.scalar_type();
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  if (x.size(0) == 0 || !x.is_contiguous() || !is_whole(x.size(1)) || !is_aligned(x)) return false;
  if (ranges.empty() || std::ssize(ranges) > kMostLowRankFactors) return false;
  return std::ranges::all_of(ranges, [](const PairRange& range) {
    return has_plain_factors(*range.pair) && is_whole(range.in_matrix) && is_whole(range.size);
  });
}

/// Numbers as they are, in the precision of x.
bool is_plain_of(const Matrix& weight_OI, const Tensor& x) {
  return weight_OI.is_plain() && weight_OI.values.is_contiguous() &&
         weight_OI.values.scalar_type() == x.scalar_type();
}

LowRankDown down_call(const Tensor& x_TI, const LowRankPlan& plan, const Tensor& h_STR) {
  LowRankDown call;
  call.x_TI = pointer(x_TI);
  call.pitch = x_TI.size(1);
  call.rows = static_cast<int>(x_TI.size(0));
  call.factors = plan.down;
  call.h_pitch = plan.down.ranks;
  call.h_STR = h_STR.data_ptr<float>();
  return call;
}

/// The splits of h as one, [T, R].
Tensor add_splits(const Tensor& x_TI, const Tensor& h_STR, LowRankPlan& plan) {
  Tensor h_TR = at::empty_like(h_STR[0]);
  low_rank_sums(down_call(x_TI, plan, h_STR), h_TR.data_ptr<float>(), stream_of(x_TI));
  plan.forget_splits();
  return h_TR;
}

/// x times the first factors, [S, T, R] or, added, [1, T, R].
Tensor multiply_down(const Tensor& x_TI, LowRankPlan& plan) {
  const Tensor h_STR =
      at::empty({plan.splits, x_TI.size(0), plan.down.ranks}, x_TI.options().dtype(at::kFloat));
  low_rank_down(number_of(x_TI), down_call(x_TI, plan, h_STR), stream_of(x_TI));
  if (plan.splits == 1 || x_TI.size(0) <= kRowsOfSums) return h_STR;
  return add_splits(x_TI, h_STR, plan).unsqueeze(0);
}

/// out = y + h times the second factors. `number`: of x.
void multiply_up(Number number, const Tensor& h_STR, const LowRankPlan& plan, const Tensor& y_TO,
                 const Tensor& out_TO) {
  LowRankUp call;
  call.h_STR = h_STR.const_data_ptr<float>();
  call.h_pitch = plan.up.ranks;
  call.rows = static_cast<int>(y_TO.size(0));
  call.outputs = static_cast<int>(y_TO.size(1));
  call.factors = plan.up;
  call.y_TO = pointer(y_TO);
  call.is_y_float = y_TO.scalar_type() == at::kFloat;
  call.out_TO = out_TO.data_ptr();
  call.is_out_float = out_TO.scalar_type() == at::kFloat;
  low_rank_up(number, call, stream_of(y_TO));
}

/// x times the first factors, added over the splits: [T, R] of all pairs. The plan forgets its splits. `scaled_TR`:
/// defined, receives scale * h in the precision of x.
Tensor summed_down(const Tensor& x_TI, LowRankPlan& plan, const Tensor& scaled_TR) {
  Tensor h_TR = at::empty({x_TI.size(0), plan.down.ranks}, x_TI.options().dtype(at::kFloat));
  LowRankDown call = down_call(x_TI, plan, h_TR);
  if (has_low_rank_down_many(call)) {
    if (scaled_TR.defined()) call.scaled_TR = scaled_TR.data_ptr();
    low_rank_down_many(number_of(x_TI), call, stream_of(x_TI));
    plan.forget_splits();
    return h_TR;
  }
  const Tensor h_STR = multiply_down(x_TI, plan);
  h_TR = h_STR.size(0) == 1 ? h_STR[0] : add_splits(x_TI, h_STR, plan);
  for (int i = 0; scaled_TR.defined() && i < plan.down.count; ++i) {
    const LowRankFactor& factor = plan.down.of[i];
    scaled_TR.narrow(1, factor.column, factor.rank)
        .copy_(h_TR.narrow(1, factor.column, factor.rank) * factor.scale);
  }
  return h_TR;
}

/// Memory of scale * h, as gradients of factors multiply it.
Tensor empty_scaled(const Tensor& x_TI, const LowRankPlan& plan) {
  return at::empty({x_TI.size(0), plan.down.ranks}, x_TI.options());
}

/// scale * h as gradients of factors multiply it.
Tensor scaled_down(const Tensor& x_TI, LowRankPlan& plan) {
  Tensor scaled_TR = empty_scaled(x_TI, plan);
  summed_down(x_TI, plan, scaled_TR);
  return scaled_TR;
}

/// Additions of the second factors by themselves, in the precision of x: [T, outputs].
Tensor filled(const Tensor& h_TR, const LowRankPlan& plan, const Tensor& x, int64_t outputs) {
  Tensor out_TO = at::empty({h_TR.size(0), outputs}, x.options());
  LowRankFill call;
  call.h_TR = h_TR.const_data_ptr<float>();
  call.h_pitch = plan.up.ranks;
  call.rows = static_cast<int>(h_TR.size(0));
  call.outputs = static_cast<int>(outputs);
  call.factors = plan.up;
  call.out_TO = out_TO.data_ptr();
  low_rank_fill(number_of(x), call, stream_of(h_TR));
  return out_TO;
}

Tensor add_pairs_by_row(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                        at::ScalarType precision) {
  const MatrixAdapters& adapters = *weight_OI.adapters;
  const MatrixAdapters::Placed& placed = adapters.placed;
  const auto type = x_TI.scalar_type();
  check((type == at::kBFloat16 || type == at::kHalf) && x_TI.is_contiguous() && is_aligned(x_TI) &&
            y_TO.is_contiguous() && y_TO.scalar_type() == at::kFloat &&
            (precision == at::kFloat || precision == type),
        "rows of several adapters are as the kernels take them");
  const Tensor h_STR = at::empty({placed.most_splits, x_TI.size(0), placed.most_ranks},
                                 x_TI.options().dtype(at::kFloat));
  const LowRankRows by_row = rows_by_adapter(adapters);
  LowRankDown down;
  down.x_TI = pointer(x_TI);
  down.pitch = x_TI.size(1);
  down.rows = static_cast<int>(x_TI.size(0));
  down.by_row = by_row;
  down.by_row.table = factor_table(placed.down);
  down.h_pitch = static_cast<int>(placed.most_ranks);
  down.h_STR = h_STR.data_ptr<float>();
  low_rank_down(number_of(x_TI), down, stream_of(x_TI));
  Tensor out_TO =
      precision == at::kFloat ? y_TO : at::empty(y_TO.sizes(), y_TO.options().dtype(precision));
  LowRankUp up;
  up.h_STR = down.h_STR;
  up.h_pitch = down.h_pitch;
  up.rows = down.rows;
  up.outputs = static_cast<int>(y_TO.size(1));
  up.first_output = static_cast<int>(weight_OI.adapter_row);
  up.by_row = by_row;
  up.by_row.table = factor_table(placed.up);
  up.y_TO = pointer(y_TO);
  up.out_TO = out_TO.data_ptr();
  up.is_out_float = precision == at::kFloat;
  low_rank_up(number_of(x_TI), up, stream_of(x_TI));
  return out_TO;
}

}  // namespace

Tensor CudaDevice::add_pairs(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                             at::ScalarType precision) const {
  if (weight_OI.adapters->rows->tiles.defined())
    return add_pairs_by_row(y_TO, x_TI, weight_OI, precision);
  const std::vector<PairRange> ranges = ranges_of(weight_OI);
  const bool is_known = precision == at::kFloat || precision == x_TI.scalar_type();
  if (!is_known || !has_kernels(x_TI, ranges) || !y_TO.is_contiguous() ||
      y_TO.scalar_type() != at::kFloat)
    return ReferenceDevice::add_pairs(y_TO, x_TI, weight_OI, precision);
  LowRankPlan plan(ranges, Way::kForward);
  const Tensor h_STR = multiply_down(x_TI, plan);
  Tensor out_TO =
      precision == at::kFloat ? y_TO : at::empty(y_TO.sizes(), y_TO.options().dtype(precision));
  multiply_up(number_of(x_TI), h_STR, plan, y_TO, out_TO);
  return out_TO;
}

/// y = x W^T + h B^T of many rows: the addition is stored first, in the precision of x, and the product adds to it.
/// Both written and read in 16 bits, it costs a quarter of a product's result in float32.
Tensor CudaDevice::linear_with_pairs(const Tensor& x_TI, const Matrix& weight_OI,
                                     const Tensor& bias_O, Tensor* hidden) const {
  const std::vector<PairRange> ranges = ranges_of(weight_OI);
  const Matrix base_OI = weight_OI.without_adapters();
  if (!has_many_rows(x_TI) || !has_kernels(x_TI, ranges) || !is_whole(weight_OI.outputs()) ||
      !is_plain_of(base_OI, x_TI))
    return ReferenceDevice::linear_with_pairs(x_TI, weight_OI, bias_O, hidden);
  LowRankPlan plan(ranges, Way::kForward);
  // Two bytes a token and rank are kept, from which the backward makes the gradients of B.
  if (hidden != nullptr) *hidden = empty_scaled(x_TI, plan);
  const Tensor h_TR = summed_down(x_TI, plan, hidden != nullptr ? *hidden : Tensor());
  const Tensor y_TO = filled(h_TR, plan, x_TI, weight_OI.outputs());
  const Tensor workspace = product_workspace(x_TI);
  LinearCall call = product_call(y_TO, x_TI, base_OI, bias_O);
  call.accumulates = true;
  linear_.run(call, workspace.data_ptr(), stream_of(x_TI));
  return y_TO;
}

/// Adapters are more inputs of the product of gates and ups, whose results are never stored.
Tensor CudaDevice::gated_linear_with_pairs(const Tensor& x_TI, const Matrix& weight_2FI,
                                           const Tensor& bias_2F) const {
  const std::vector<PairRange> ranges = ranges_of(weight_2FI);
  const Matrix base_2FI = weight_2FI.without_adapters();
  if (!has_kernels(x_TI, ranges) || !has_gated(x_TI, base_2FI, bias_2F))
    return ReferenceDevice::gated_linear_with_pairs(x_TI, weight_2FI, bias_2F);
  GatedProduct call = gated_call(x_TI, base_2FI, bias_2F);
  const cudaStream_t stream = stream_of(x_TI);
  LowRankPlan plan(ranges, Way::kForward);
  const Tensor h_TR = summed_down(x_TI, plan, {});
  LowRankColumns more;
  more.h_TR = h_TR.const_data_ptr<float>();
  more.h_pitch = plan.up.ranks;
  more.rows = static_cast<int>(call.rows);
  more.outputs = static_cast<int>(2 * call.units);
  more.factors = plan.up;
  const Tensor h_TC = at::empty({call.rows, more.columns()}, x_TI.options());
  const Tensor b_2FC = at::empty({2 * call.units, more.columns()}, x_TI.options());
  more.h_TC = h_TC.data_ptr();
  more.b_OC = b_2FC.data_ptr();
  low_rank_columns(Number::kBFloat16, more, stream);
  Tensor y_TF = at::empty({call.rows, call.units}, x_TI.options());
  call.more_TC = h_TC.data_ptr();
  call.more_weight_2FC = b_2FC.data_ptr();
  call.more_inputs = more.columns();
  call.y_TF = y_TF.data_ptr();
  gated_product(call, stream);
  return y_TF;
}

/// dB += dy^T (s h) and dA += (s dh)^T x; both h scaled, in the precision of x.
void CudaDevice::add_factor_grads_(const std::vector<PairRange>& ranges, const Tensor& dy_TO,
                                   const Tensor& x_TI, const Tensor& scaled_h_TR,
                                   const Tensor& scaled_dh_TR) const {
  int64_t column = 0;
  for (const PairRange& range : ranges) {
    const LowRankPair& pair = *range.pair;
    const int64_t rank = pair.a.value.size(0), begin = std::exchange(column, column + rank);
    if (!pair.a.grad.defined()) continue;
    add_linear_weight_grad_(range.of_b(pair.b.grad), range.of_matrix(dy_TO),
                            scaled_h_TR.narrow(1, begin, rank));
    add_linear_weight_grad_(pair.a.grad, scaled_dh_TR.narrow(1, begin, rank), x_TI);
  }
}

Tensor CudaDevice::pairs_backward(const Matrix& weight_OI, const Tensor& dy_TO, const Tensor& x_TI,
                                  const Tensor& hidden) const {
  const std::vector<PairRange> ranges = ranges_of(weight_OI);
  const Matrix base_OI = weight_OI.without_adapters();
  if (!has_many_rows(x_TI) || !has_kernels(x_TI, ranges) || !has_kernels(dy_TO, ranges) ||
      dy_TO.scalar_type() != x_TI.scalar_type() || !is_plain_of(base_OI, x_TI))
    return ReferenceDevice::pairs_backward(weight_OI, dy_TO, x_TI, hidden);
  LowRankPlan back(ranges, Way::kBack);
  const Tensor scaled_dh_TR = empty_scaled(dy_TO, back);
  const Tensor dh_TR = summed_down(dy_TO, back, scaled_dh_TR);
  const auto computed_again = [&] {
    LowRankPlan forward(ranges, Way::kForward);
    return scaled_down(x_TI, forward);
  };
  add_factor_grads_(ranges, dy_TO, x_TI, hidden.defined() ? hidden : computed_again(),
                    scaled_dh_TR);
  Tensor dx_TI = filled(dh_TR, back, x_TI, x_TI.size(1));
  at::addmm_out(dx_TI, dx_TI, dy_TO, base_OI.values);
  return dx_TI;
}

void CudaDevice::add_pairs_input_grad_(const Tensor& dx_TI, const Tensor& dy_TO,
                                       const Matrix& weight_OI) const {
  const std::vector<PairRange> ranges = ranges_of(weight_OI);
  if (!has_kernels(dy_TO, ranges) || !dx_TI.is_contiguous() ||
      dx_TI.scalar_type() != dy_TO.scalar_type())
    return ReferenceDevice::add_pairs_input_grad_(dx_TI, dy_TO, weight_OI);
  LowRankPlan plan(ranges, Way::kBack);
  const Tensor dh_STR = multiply_down(dy_TO, plan);
  multiply_up(number_of(dy_TO), dh_STR, plan, dx_TI, dx_TI);
}

void CudaDevice::add_pairs_weight_grad_(const Matrix& weight_OI, const Tensor& dy_TO,
                                        const Tensor& x_TI) const {
  const std::vector<PairRange> ranges = ranges_of(weight_OI);
  if (!has_kernels(x_TI, ranges) || !has_kernels(dy_TO, ranges) ||
      dy_TO.scalar_type() != x_TI.scalar_type())
    return ReferenceDevice::add_pairs_weight_grad_(weight_OI, dy_TO, x_TI);
  LowRankPlan forward(ranges, Way::kForward), back(ranges, Way::kBack);
  add_factor_grads_(ranges, dy_TO, x_TI, scaled_down(x_TI, forward), scaled_down(dy_TO, back));
}

}  // namespace slime::kernels::cuda
