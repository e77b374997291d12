#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "kernels/cuda/code_products.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/experts/expert_codes.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/grouped_product.h"
#include "kernels/cuda/experts/norm_route.h"
#include "kernels/cuda/experts/visits.h"
#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/narrow_product.h"
#include "kernels/cuda/products/wide_product.h"

namespace slime::kernels::cuda {
namespace {

BatchProduct product_of(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& y) {
  BatchProduct product;
  product.x_TI = pointer(x_TI);
  product.weight_OI = pointer(weight_OI);
  product.rows = static_cast<int>(x_TI.size(0));
  product.inputs = static_cast<int>(weight_OI.inputs());
  product.outputs = static_cast<int>(weight_OI.outputs());
  product.float_result = y.scalar_type() == at::kFloat;
  product.y = y.data_ptr();
  return product;
}

/// The choices of a router's kernel, and the call that makes them; its rows are still to be named.
struct Choices : RouterChoices {
  RouteCall call;
};

Choices choices_of(const RoutedExperts& experts, int64_t rows) {
  Choices out;
  const auto options = experts.router_EH.values.options();
  const RouterRule& rule = experts.rule;
  out.expert_TK = at::empty({rows, rule.per_token}, options.dtype(at::kInt));
  out.weight_TK = at::empty({rows, rule.per_token}, options.dtype(at::kFloat));
  RouteCall& call = out.call;
  call.router_EH = pointer(experts.router_EH);
  if (experts.selection_bias_E.defined())
    call.selection_bias_E = experts.selection_bias_E.const_data_ptr<float>();
  call.is_sigmoid = rule.is_sigmoid;
  call.normalizes = rule.normalizes;
  call.scaling = static_cast<float>(rule.scaling);
  call.expert_TK = out.expert_TK.data_ptr<int32_t>();
  call.weight_TK = out.weight_TK.data_ptr<float>();
  if (experts.chosen_TK.defined()) {
    call.chosen_TK = experts.chosen_TK.data_ptr<int16_t>();
    call.chosen_stride = experts.chosen_TK.stride(0);
  }
  call.rows = static_cast<int>(rows);
  call.hidden = static_cast<int>(experts.router_EH.inputs());
  call.experts = static_cast<int>(experts.count());
  call.per_token = static_cast<int>(rule.per_token);
  return out;
}

/// The output product as parts that a later kernel adds up in float32, [S, T, H]; none with so many
/// rows that the library's product is as fast.
Tensor output_parts(const BlockChain& chain, cudaStream_t stream) {
  const Tensor& residual_TH = chain.residual_TH;
  const int64_t rows = residual_TH.size(0), hidden = residual_TH.size(1);
  const auto empty_parts = [&](int64_t splits) {
    return at::empty({splits, rows, hidden}, residual_TH.options().dtype(at::kFloat));
  };
  if (has_narrow_product(Number::kBFloat16, rows, chain.output_HC.inputs())) {
    const Tensor parts = empty_parts(1);
    narrow_product(product_of(chain.attended_TC, chain.output_HC, parts), {}, stream);
    return parts;
  }
  if (!has_batch_product(Number::kBFloat16, rows)) return {};
  const Tensor parts = empty_parts(
      batch_product_splits(static_cast<int>(chain.output_HC.inputs()), static_cast<int>(hidden)));
  BatchProduct product = product_of(chain.attended_TC, chain.output_HC, parts);
  product.float_result = false;
  product.epilogue = BatchProduct::Epilogue::kSplitK;
  batch_product(product, stream);
  return parts;
}

/// Of experts in codes more rows than a product takes come in pieces, each of which reads the experts: up to here that is
/// less than the numbers of all experts would be, which would first be written (cuda_device_grouped.cpp).
constexpr int64_t kMostCodedRows = 1024;

int64_t rows_at_once(int64_t rows, int64_t per_token) {
  return std::min({rows, int64_t{kMostExpertRows}, kMostExpertVisits / per_token});
}

/// Whether norm_route() takes the router and rows of these precisions and sizes.
bool has_router(const Tensor& x_TH, const RoutedExperts& experts) {
  const Tensor& bias = experts.selection_bias_E;
  return is_plain(x_TH) && is_plain(experts.router_EH) &&
         has_norm_route(x_TH.size(1), experts.count(), experts.rule.per_token) &&
         (!bias.defined() || (bias.scalar_type() == at::kFloat && bias.is_contiguous()));
}

/// Of plain weights or codes. `parts`: null, or of codes.
void multiply_visits(ExpertProduct call, const Matrix& weights_EUI, const VisitParts* parts,
                     cudaStream_t stream) {
  call.weights = weights_EUI.values.const_data_ptr();
  if (!is_codes(weights_EUI)) return expert_product(call, stream);
  ExpertCodes codes{.product = call,
                    .factors_EBC = weights_EUI.scales.const_data_ptr<float>(),
                    .factor_row_U = weights_EUI.scale_row_O.const_data_ptr<int64_t>(),
                    .factor_rows = static_cast<int>(weights_EUI.scales.size(1))};
  if (parts != nullptr) {
    codes.parts_KTU = parts->parts_KTH.data_ptr<float>();
    codes.visit_weight_V = parts->weight_TK.const_data_ptr<float>();
  }
  expert_codes(codes, stream);
}

}  // namespace

bool CudaDevice::has_routed_experts(const Tensor& x_TH, const RoutedExperts& experts) const {
  const int64_t rows = x_TH.size(0), hidden = x_TH.size(1), count = experts.count(),
                width = experts.width(), per_token = experts.rule.per_token;
  // Training has the router, grouped products and the activation, each for any number of rows.
  if (arithmetic() == Arithmetic::kTraining) return false;
  if (rows == 0 || !has_router(x_TH, experts)) return false;
  if (are_codes(experts)) {
    const int64_t at_once = rows_at_once(rows, per_token);
    return rows <= kMostCodedRows && at_once > 0 &&
           has_expert_codes(at_once, per_token, count, hidden, width) &&
           has_expert_codes(at_once, per_token, count, width, hidden);
  }
  return is_plain(experts.gate_up) && is_plain(experts.down) &&
         has_expert_product(rows, per_token, count, hidden, width) &&
         has_expert_product(rows, per_token, count, width, hidden);
}

Tensor CudaDevice::visit_experts(const Tensor& x_TH, const Tensor& expert_TK,
                                 const RoutedExperts& experts, const VisitParts* parts) const {
  const cudaStream_t stream = stream_of(x_TH);
  {
    const std::lock_guard lock(visited_mutex_);
    if (!visited_2_.defined()) visited_2_ = at::zeros({2}, x_TH.options().dtype(at::kLong));
  }
  const int64_t rows = expert_TK.size(0), per_token = expert_TK.size(1);
  const Tensor gated_VF = at::empty({rows * per_token, experts.width()}, x_TH.options());
  const Tensor rows_VH =
      parts == nullptr ? at::empty({rows * per_token, x_TH.size(1)}, x_TH.options()) : Tensor();
  const int64_t at_once = rows_at_once(rows, per_token);
  check(parts == nullptr || at_once == rows, "partial sums of visits are those of a whole step");
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    const int64_t count = std::min(at_once, rows - begin);
    const auto of_piece = [&](const Tensor& all, int64_t of_row) {
      return all.narrow(0, begin * of_row, count * of_row);
    };
    const Tensor gated = of_piece(gated_VF, per_token);
    ExpertProduct call;
    call.expert_V = of_piece(expert_TK, 1).const_data_ptr<int32_t>();
    call.rows = static_cast<int>(count);
    call.per_token = static_cast<int>(per_token);
    call.experts = static_cast<int>(experts.count());
    call.is_gated = true;
    call.x = pointer(of_piece(x_TH, 1));
    call.inputs = static_cast<int>(x_TH.size(1));
    call.units = static_cast<int>(experts.width());
    call.y_VU = gated.data_ptr();
    // Of whole steps, as decode has them.
    if (at_once == rows)
      call.visited = reinterpret_cast<unsigned long long*>(visited_2_.data_ptr<int64_t>());
    multiply_visits(call, experts.gate_up, nullptr, stream);
    call.is_gated = false;
    call.x = pointer(gated);
    std::swap(call.inputs, call.units);
    call.y_VU = parts == nullptr ? of_piece(rows_VH, per_token).data_ptr() : nullptr;
    call.visited = nullptr;
    multiply_visits(call, experts.down, parts, stream);
  }
  return rows_VH;
}

Tensor CudaDevice::routed_experts(const Tensor& x_TH, const RoutedExperts& experts) const {
  Choices choices = choices_of(experts, x_TH.size(0));
  choices.call.x_TH = pointer(x_TH);
  norm_route(choices.call, stream_of(x_TH));
  return sum_of_visits(visit_experts(x_TH, choices.expert_TK, experts), {}, choices.weight_TK);
}

bool CudaDevice::has_exact_experts(const ExpertSizes& sizes) const {
  return has_norm_route(sizes.hidden, sizes.count, sizes.per_token) &&
         has_grouped_product(sizes.count, 2 * sizes.width, sizes.hidden) &&
         has_grouped_product(sizes.count, sizes.hidden, sizes.width);
}

RouterChoices CudaDevice::exact_choices(const Tensor& x_TH, const RoutedExperts& experts) const {
  check(has_router(x_TH, experts),
        "--true-on-policy was refused where routers have no training arithmetic");
  Choices choices = choices_of(experts, x_TH.size(0));
  choices.call.x_TH = pointer(x_TH);
  choices.call.has_one_form = true;
  if (x_TH.size(0) > 0) norm_route(choices.call, stream_of(x_TH));
  return {choices.expert_TK, choices.weight_TK};
}

VisitedExperts CudaDevice::visited_experts() const {
  const std::lock_guard lock(visited_mutex_);
  if (!visited_2_.defined()) return {};
  const Tensor sums = visited_2_.cpu();
  return {sums[0].item<int64_t>(), sums[1].item<int64_t>()};
}

std::optional<GatedGradients> CudaDevice::gated_gradients(const Tensor& dgated_SF,
                                                          const Tensor& gate_up_S2F,
                                                          const Tensor& weight_S) const {
  if (!is_plain(dgated_SF) || !is_plain(gate_up_S2F) || dgated_SF.size(1) % 8 != 0 ||
      weight_S.scalar_type() != at::kFloat || !weight_S.is_contiguous())
    return std::nullopt;
  GatedGradients out{at::empty_like(gate_up_S2F), at::empty_like(dgated_SF),
                     at::empty_like(weight_S)};
  GatedBackward call;
  call.dgated_SF = pointer(dgated_SF);
  call.gate_up_S2F = pointer(gate_up_S2F);
  call.weight_S = weight_S.const_data_ptr<float>();
  call.dgate_up_S2F = out.dgate_up_S2F.data_ptr();
  call.weighted_SF = out.weighted_SF.data_ptr();
  call.dweight_S = out.dweight_S.data_ptr<float>();
  call.rows = dgated_SF.size(0);
  call.width = static_cast<int>(dgated_SF.size(1));
  gated_backward(call, stream_of(dgated_SF));
  return out;
}

bool CudaDevice::has_chained_experts(const Tensor& x_TH, const RoutedExperts& experts) const {
  if (!has_routed_experts(x_TH, experts)) return false;
  return !experts.shared_down.defined() ||
         (is_plain(experts.shared_gate_up) && is_plain(experts.shared_down) &&
          experts.shared_down.inputs() % kBatchProductInputs == 0);
}

Tensor CudaDevice::visit_shared(const Tensor& x_TH, const RoutedExperts& experts,
                                bool float_result) const {
  if (!experts.shared_down.defined()) return {};
  const cudaStream_t stream = stream_of(x_TH);
  const int64_t rows = x_TH.size(0);
  const auto options = x_TH.options();
  if (is_codes(experts.shared_down)) {
    Tensor out_TH = at::empty(x_TH.sizes(), options);
    gated_code_mlp_into(out_TH, x_TH, experts.shared_gate_up, experts.shared_down, stream);
    return out_TH;
  }
  const auto multiply = [&](const BatchProduct& product) {
    if (has_narrow_product(Number::kBFloat16, rows, product.inputs)) {
      narrow_product(product, {}, stream);
    } else if (has_batch_product(Number::kBFloat16, rows)) {
      batch_product(product, stream);
    } else {
      wide_product(product, stream);
    }
  };
  const Tensor gated_TS = at::empty({rows, experts.shared_down.inputs()}, options);
  BatchProduct gate_up = product_of(x_TH, experts.shared_gate_up, gated_TS);
  gate_up.epilogue = BatchProduct::Epilogue::kSwiglu;
  multiply(gate_up);
  if (!has_batch_product(Number::kBFloat16, rows)) return linear(gated_TS, experts.shared_down, {});
  const Tensor out_TH = at::empty(x_TH.sizes(), float_result ? options.dtype(at::kFloat) : options);
  multiply(product_of(gated_TS, experts.shared_down, out_TH));
  return out_TH;
}

Tensor CudaDevice::sum_with_shared(const Tensor& rows_VH, const Tensor& weight_TK,
                                   const Tensor& shared_TH) const {
  Tensor out_TH = at::empty({weight_TK.size(0), rows_VH.size(1)}, rows_VH.options());
  VisitSum sum;
  sum.rows_SH = pointer(rows_VH);
  sum.weight_TK = weight_TK.const_data_ptr<float>();
  sum.more_TH = pointer(shared_TH);
  sum.rows = weight_TK.size(0);
  sum.per_token = static_cast<int>(weight_TK.size(1));
  sum.hidden = static_cast<int>(rows_VH.size(1));
  sum.out_TH = out_TH.data_ptr();
  cuda::sum_visits(sum, stream_of(rows_VH));
  return out_TH;
}

/// Of ranks that have slices of all experts: their sums are kernels that also add and norm, so the
/// router's kernel does not.
Tensor CudaDevice::expert_chain_of_ranks(const BlockChain& chain) const {
  const RoutedExperts& experts = *chain.experts;
  const RankCollectives& ranks = *chain.ranks;
  const cudaStream_t stream = stream_of(chain.residual_TH);
  const int64_t rows = chain.residual_TH.size(0);
  const bool is_fused = ranks.has_add_norm(chain.residual_TH);
  const auto added_norm = [&](const Tensor& partial, const Tensor& bias_H, const Tensor& norm_H) {
    if (is_fused) return ranks.add_norm_(chain.residual_TH, partial, bias_H, norm_H, chain.eps);
    ranks.sum_(partial);
    return add_rms_norm_(chain.residual_TH, partial, norm_H, chain.eps);
  };

  const Tensor parts_STH = is_fused ? output_parts(chain, stream) : Tensor();
  const Tensor input_TH =
      parts_STH.defined()
          ? added_norm(parts_STH, chain.output_bias_H, chain.post_norm_H)
          : added_norm(linear(chain.attended_TC, chain.output_HC, chain.output_bias_H), {},
                       chain.post_norm_H);
  Choices choices = choices_of(experts, rows);
  choices.call.x_TH = pointer(input_TH);
  norm_route(choices.call, stream);
  const Tensor shared_TH = visit_shared(input_TH, experts, false);
  const Tensor update_TH = sum_with_shared(visit_experts(input_TH, choices.expert_TK, experts),
                                           choices.weight_TK, shared_TH);
  if (!chain.next_norm_H.defined()) {
    ranks.sum_(update_TH);
    return update_TH;
  }
  const Tensor next_TH = added_norm(update_TH, {}, chain.next_norm_H);
  if (!has_batch_product(Number::kBFloat16, rows))
    return linear(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E);
  Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.outputs()}, chain.residual_TH.options());
  BatchProduct qkv = product_of(next_TH, chain.next_qkv_EH, heads_TE);
  qkv.bias_O = pointer(chain.next_qkv_bias_E);
  has_narrow_product(Number::kBFloat16, rows, qkv.inputs) ? narrow_product(qkv, {}, stream)
                                                          : batch_product(qkv, stream);
  return heads_TE;
}

/// From attention to attention with experts between: output product, addition, norm and router in
/// one, experts, their sum with addition and norm, and the next product.
Tensor CudaDevice::expert_chain(const BlockChain& chain) const {
  if (chain.ranks != nullptr) return expert_chain_of_ranks(chain);
  const RoutedExperts& experts = *chain.experts;
  const cudaStream_t stream = stream_of(chain.residual_TH);
  const int64_t rows = chain.residual_TH.size(0), hidden = chain.residual_TH.size(1);
  const auto options = chain.residual_TH.options();
  const bool is_coded = is_codes(chain.output_HC);
  const bool is_batch = !is_coded && has_batch_product(Number::kBFloat16, rows);

  Choices choices = choices_of(experts, rows);
  RouteCall& route = choices.call;
  // Alive until the kernels that read them are launched.
  const Tensor parts_STH = is_coded ? code_parts(chain.attended_TC, chain.output_HC, stream)
                                    : output_parts(chain, stream);
  Tensor update_TH;
  if (parts_STH.defined()) {
    route.splits = static_cast<int>(parts_STH.size(0));
    route.partials_STH = parts_STH.const_data_ptr<float>();
  } else {
    update_TH = linear(chain.attended_TC, chain.output_HC, {});
    route.update_TH = pointer(update_TH);
  }
  const Tensor input_TH = at::empty({rows, hidden}, options),
               sum_TH = at::empty({rows, hidden}, options);
  route.bias_H = pointer(chain.output_bias_H);
  route.x_TH = pointer(chain.residual_TH);
  route.sum_TH = sum_TH.data_ptr();
  route.norm_H = pointer(chain.post_norm_H);
  route.normed_TH = input_TH.data_ptr();
  route.eps = static_cast<float>(chain.eps);
  norm_route(route, stream);

  if (is_coded && chain.next_norm_H.defined() && rows <= fp8::kMostFewRows &&
      rows_at_once(rows, experts.rule.per_token) == rows)
    return few_code_end(chain, input_TH, sum_TH, choices.expert_TK, choices.weight_TK);
  const bool ends_narrow = chain.next_norm_H.defined() && !is_coded &&
                           has_narrow_product(Number::kBFloat16, rows, chain.next_qkv_EH.inputs());
  const Tensor shared_TH = visit_shared(input_TH, experts, ends_narrow);
  const Tensor rows_VH = visit_experts(input_TH, choices.expert_TK, experts);
  if (!chain.next_norm_H.defined()) {
    chain.residual_TH.copy_(sum_TH);
    return sum_with_shared(rows_VH, choices.weight_TK, shared_TH);
  }
  if (ends_narrow) {
    NormPrologue norm;
    norm.residual_TI = pointer(sum_TH);
    if (shared_TH.defined()) norm.added_TI = shared_TH.const_data_ptr<float>();
    norm.visits_TKI = pointer(rows_VH);
    norm.visit_weight_TK = choices.weight_TK.const_data_ptr<float>();
    norm.per_token = static_cast<int>(experts.rule.per_token);
    norm.weight_I = pointer(chain.next_norm_H);
    norm.sum_TI = chain.residual_TH.data_ptr();
    norm.eps = static_cast<float>(chain.eps);
    Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.outputs()}, options);
    BatchProduct qkv = product_of(chain.residual_TH, chain.next_qkv_EH, heads_TE);
    qkv.bias_O = pointer(chain.next_qkv_bias_E);
    narrow_product(qkv, norm, stream);
    return heads_TE;
  }
  const Tensor next_TH = at::empty({rows, hidden}, options);
  VisitSum sum;
  sum.rows_SH = pointer(rows_VH);
  sum.weight_TK = choices.weight_TK.const_data_ptr<float>();
  sum.more_TH = pointer(shared_TH);
  sum.rows = rows;
  sum.per_token = static_cast<int>(experts.rule.per_token);
  sum.hidden = static_cast<int>(hidden);
  sum.base_TH = pointer(sum_TH);
  sum.residual_TH = chain.residual_TH.data_ptr();
  sum.norm_H = pointer(chain.next_norm_H);
  sum.eps = static_cast<float>(chain.eps);
  sum.out_TH = next_TH.data_ptr();
  cuda::sum_visits(sum, stream);
  if (!is_batch) return linear(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E);
  Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.outputs()}, options);
  BatchProduct qkv = product_of(next_TH, chain.next_qkv_EH, heads_TE);
  qkv.bias_O = pointer(chain.next_qkv_bias_E);
  batch_product(qkv, stream);
  return heads_TE;
}

Tensor CudaDevice::sum_of_visits(const Tensor& rows_SH, const Tensor& place_TK,
                                 const Tensor& weight_TK) const {
  const Tensor& sizes = place_TK.defined() ? place_TK : weight_TK;
  Tensor out_TH = at::empty({sizes.size(0), rows_SH.size(1)}, rows_SH.options());
  VisitSum sum;
  sum.rows_SH = pointer(rows_SH);
  if (place_TK.defined()) sum.place_TK = place_TK.const_data_ptr<int64_t>();
  if (weight_TK.defined()) sum.weight_TK = weight_TK.const_data_ptr<float>();
  sum.rows = sizes.size(0);
  sum.per_token = static_cast<int>(sizes.size(1));
  sum.hidden = static_cast<int>(rows_SH.size(1));
  sum.out_TH = out_TH.data_ptr();
  cuda::sum_visits(sum, stream_of(rows_SH));
  return out_TH;
}

Tensor CudaDevice::sum_visits(const Tensor& rows_SH, const Tensor& place_TK,
                              const Tensor& weight_TK) const {
  constexpr int64_t kMostHidden = 16384;
  if (!is_plain(rows_SH) || rows_SH.size(1) % 8 != 0 || rows_SH.size(1) > kMostHidden ||
      !place_TK.is_contiguous())
    return ReferenceDevice::sum_visits(rows_SH, place_TK, weight_TK);
  return sum_of_visits(rows_SH, place_TK, weight_TK.defined() ? weight_TK.contiguous() : weight_TK);
}

}  // namespace slime::kernels::cuda
