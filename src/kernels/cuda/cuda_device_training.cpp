#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cuda/attention/packed_attention.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/training/rows_backward.h"
#include "kernels/gpu/attention_levels.h"
#include "kernels/gpu/ordered_levels.h"
#include "kernels/gpu/windowed_rows.h"

namespace slime::kernels::cuda {
namespace {

float* floats(const Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

/// Sums of a weight's gradient by thread blocks; undefined for a frozen weight.
Tensor partial_for(const Tensor& grad, int64_t rows_per_block, int64_t columns) {
  if (!grad.defined()) return {};
  return at::empty({num_partial_rows() * rows_per_block, columns}, grad.options());
}

void add_partial(const Tensor& partial, const Tensor& grad) {
  if (!partial.defined()) return;
  add_column_sums(partial.const_data_ptr<float>(), partial.size(0), partial.size(1),
                  grad.data_ptr<float>(), stream_of(grad));
}

int64_t longest_of(const std::vector<Segment>& segments) {
  int64_t most = 0;
  for (const Segment& segment : segments) most = std::max(most, segment.end - segment.begin);
  return most;
}

bool has_packs(const Tensor& x) {
  return has_number(x) && x.is_contiguous() && x.size(-1) * x.element_size() % 16 == 0;
}

}  // namespace

void CudaDevice::add_rows_(Tensor sum_VH, const Tensor& row_T, const Tensor& x_TH) const {
  const auto is_ours = [&](const Tensor& x) {
    return has_number(x) && x.dim() > 1 && x.is_contiguous() && x[0].numel() % kAddedColumns == 0 &&
           is_aligned(x);
  };
  if (x_TH.numel() == 0) return;
  const bool is_float = sum_VH.scalar_type() == at::kFloat;
  if (!is_ours(sum_VH) || !is_ours(x_TH) ||
      !(is_float || sum_VH.scalar_type() == x_TH.scalar_type()))
    return ReferenceDevice::add_rows_(sum_VH, row_T, x_TH);
  const auto [sorted_T, from_T] = row_T.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  AddRowsCall call;
  call.number = number_of(x_TH);
  call.has_float_sum = is_float;
  call.x_TH = pointer(x_TH);
  call.sorted_T = sorted_T.const_data_ptr<int64_t>();
  call.from_T = from_T.const_data_ptr<int64_t>();
  call.sum_VH = sum_VH.data_ptr();
  call.rows = x_TH.size(0);
  call.columns = x_TH.numel() / x_TH.size(0);
  add_rows(call, stream_of(x_TH));
}

void CudaDevice::add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                                         const Tensor& x_TI) const {
  if (dy_TO.scalar_type() == grad_OI.scalar_type() || grad_OI.scalar_type() != at::kFloat)
    return ReferenceDevice::add_linear_weight_grad_(grad_OI, dy_TO, x_TI);
  at::addmm_out(grad_OI, grad_OI, dy_TO.t(), x_TI, at::kFloat);
}

void CudaDevice::linear_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO,
                                        const Matrix& matrix_OI) const {
  const Tensor& weight_OI = matrix_OI.plain();
  if (dy_TO.scalar_type() != weight_OI.scalar_type())
    return ReferenceDevice::linear_input_grad_into(dx_TI, dy_TO, matrix_OI);
  Tensor out = dx_TI;
  at::mm_out(out, dy_TO, weight_OI);
}

Tensor CudaDevice::rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH,
                                     const Tensor& weight_H, double eps, Tensor grad_H) const {
  return add_rms_norm_backward({}, dy_TH, x_TH, weight_H, eps, std::move(grad_H));
}

Tensor CudaDevice::add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH,
                                         const Tensor& sum_TH, const Tensor& weight_H, double eps,
                                         Tensor grad_H) const {
  const auto is_ours = [&](const Tensor& x) {
    return has_packs(x) && x.scalar_type() == sum_TH.scalar_type();
  };
  const bool is_float = weight_H.scalar_type() == at::kFloat;
  if (!is_ours(sum_TH) || !is_ours(dy_TH) || !weight_H.is_contiguous() ||
      !(is_float || is_ours(weight_H)) || (dsum_TH.defined() && !is_ours(dsum_TH))) {
    const Tensor dx_TH = ReferenceDevice::rms_norm_backward(dy_TH, sum_TH, weight_H, eps, grad_H);
    return dsum_TH.defined() ? dx_TH + dsum_TH : dx_TH;
  }
  const Tensor partial_BH = partial_for(grad_H, 1, sum_TH.size(1));
  Tensor dx_TH = at::empty_like(sum_TH);
  NormBackwardCall call;
  call.number = number_of(sum_TH);
  call.dy_TH = pointer(dy_TH);
  call.x_TH = pointer(sum_TH);
  call.weight_H = pointer(weight_H);
  call.has_float_weight = is_float;
  call.dsum_TH = pointer(dsum_TH);
  call.dx_TH = dx_TH.data_ptr();
  call.partial_BH = floats(partial_BH);
  call.rows = sum_TH.size(0);
  call.hidden = sum_TH.size(1);
  call.eps = static_cast<float>(eps);
  cuda::rms_norm_backward(call, stream_of(sum_TH));
  add_partial(partial_BH, grad_H);
  return dx_TH;
}

Tensor CudaDevice::swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const {
  if (!has_packs(gate_up_T2F) || !has_packs(dy_TF) ||
      dy_TF.scalar_type() != gate_up_T2F.scalar_type())
    return ReferenceDevice::swiglu_backward(dy_TF, gate_up_T2F);
  Tensor dgate_up_T2F = at::empty_like(gate_up_T2F);
  cuda::swiglu_backward(number_of(dy_TF), pointer(dy_TF), pointer(gate_up_T2F),
                        dgate_up_T2F.data_ptr(), dy_TF.size(0), dy_TF.size(1), stream_of(dy_TF));
  return dgate_up_T2F;
}

Tensor CudaDevice::norm_rotate_backward(const Tensor& dy_TE, const Tensor& qkv_TE,
                                        const Tensor& positions_T, const Tensor& q_norm_D,
                                        const Tensor& k_norm_D, const Tensor& cos_PR,
                                        const Tensor& sin_PR, const RotaryShape& shape,
                                        Tensor q_norm_grad_D, Tensor k_norm_grad_D) const {
  if (!has_packs(dy_TE) || shape.head_dim % 4 != 0 || shape.head_dim > 256 ||
      !are_norms_ours(dy_TE, q_norm_D, k_norm_D))
    return ReferenceDevice::norm_rotate_backward(dy_TE, qkv_TE, positions_T, q_norm_D, k_norm_D,
                                                 cos_PR, sin_PR, shape, q_norm_grad_D,
                                                 k_norm_grad_D);
  const Tensor q_partial = partial_for(q_norm_grad_D, shape.num_heads, shape.head_dim);
  const Tensor k_partial = partial_for(k_norm_grad_D, shape.num_kv_heads, shape.head_dim);
  Tensor dx_TE = at::empty_like(dy_TE);
  RotateBackwardCall call;
  call.forward.number = number_of(dy_TE);
  call.forward.qkv_TE = pointer(qkv_TE);
  call.forward.out_TE = dx_TE.data_ptr();
  call.forward.positions_T = positions_T.const_data_ptr<int64_t>();
  call.forward.q_norm_D = pointer(q_norm_D);
  call.forward.k_norm_D = pointer(k_norm_D);
  call.forward.has_float_norms = are_float_norms(dy_TE, q_norm_D);
  call.forward.cos_PR = cos_PR.const_data_ptr<float>();
  call.forward.sin_PR = sin_PR.const_data_ptr<float>();
  call.forward.rows = dy_TE.size(0);
  call.forward.num_heads = static_cast<int>(shape.num_heads);
  call.forward.num_kv_heads = static_cast<int>(shape.num_kv_heads);
  call.forward.head_dim = static_cast<int>(shape.head_dim);
  call.forward.eps = static_cast<float>(shape.norm_eps);
  call.dy_TE = pointer(dy_TE);
  call.q_partial_BD = floats(q_partial);
  call.k_partial_BD = floats(k_partial);
  cuda::norm_rotate_backward(call, stream_of(dy_TE));
  add_partial(q_partial, q_norm_grad_D);
  add_partial(k_partial, k_norm_grad_D);
  return dx_TE;
}

PackedAttention* CudaDevice::packed_attention(const Tensor& heads_TE, const RotaryShape& heads,
                                              const TreeAttentionShape& shape) const {
  if (shape.cap > 0) return nullptr;  // the library's scores have no caps
  if (!PackedAttention::may_have_kernels(heads_TE.scalar_type(), heads)) return nullptr;
  if (attention_ == nullptr) attention_ = std::make_unique<PackedAttention>();
  return attention_->has_kernels(heads_TE.scalar_type(), heads, shape) ? attention_.get() : nullptr;
}

Tensor CudaDevice::tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                  const RotaryShape& heads, const TreeAttentionShape& shape,
                                  Tensor& logsumexp_TN) const {
  const std::lock_guard lock(attention_mutex_);
  PackedAttention* attention = packed_attention(heads_TE, heads, shape);
  const auto levels = attention_levels(segments, shape.window);
  if (attention != nullptr && !levels && shape.window > 0) {
    if (const WindowedBatch* batch = windowed_batch(heads_TE, segments, shape.window))
      return windowed_attention(heads_TE, *batch, heads, shape, logsumexp_TN);
  }
  if (attention == nullptr || !levels)
    return ReferenceDevice::tree_attention(heads_TE, segments, heads, shape, logsumexp_TN);
  const int64_t rows = heads_TE.size(0);
  Tensor y_TC = at::empty({rows, heads.num_heads * heads.head_dim}, heads_TE.options());
  const auto statistics = heads_TE.options().dtype(at::kFloat);
  logsumexp_TN = at::empty({rows, heads.num_heads}, statistics);
  if (levels->front().pairs.empty()) return y_TC;
  attention->forward(heads_TE, {}, levels->front(), heads, shape, y_TC, logsumexp_TN);
  for (std::size_t i = 1; i < levels->size(); ++i) {
    const Tensor more_TC = at::empty_like(y_TC);
    const Tensor more_TN = at::full({rows, heads.num_heads}, -INFINITY, statistics);
    // A window that reached into other segments was dealt with above.
    attention->forward(heads_TE, {}, (*levels)[i], heads, {shape.scale, 0}, more_TC, more_TN);
    merge_attention(number_of(y_TC), y_TC.data_ptr(), logsumexp_TN.data_ptr<float>(),
                    pointer(more_TC), more_TN.const_data_ptr<float>(), rows, heads.num_heads,
                    heads.head_dim, stream_of(y_TC));
  }
  return y_TC;
}

Tensor CudaDevice::tree_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                           const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                           const std::vector<Segment>& segments,
                                           const RotaryShape& heads,
                                           const TreeAttentionShape& shape) const {
  const std::lock_guard lock(attention_mutex_);
  PackedAttention* attention = packed_attention(heads_TE, heads, shape);
  if (shape.ordered_backward && attention != nullptr &&
      !attention->has_ordered_backward(heads_TE.scalar_type(), heads, shape))
    attention = nullptr;  // plain products have one order
  auto levels = attention_levels(segments, shape.window);
  const bool is_divided = shape.ordered_backward && shape.window > 0 &&
                          longest_of(segments) > ordered_window_rows(heads.num_heads, shape.window);
  if (attention != nullptr && shape.window > 0 && (!levels || is_divided)) {
    const int64_t most = ordered_window_rows(heads.num_heads, shape.window) - (shape.window - 1);
    const WindowedBatch* batch = windowed_batch(
        heads_TE, shape.ordered_backward ? divided_segments(segments, most) : segments,
        shape.window);
    if (batch != nullptr)
      return windowed_attention_backward(dy_TC, y_TC, heads_TE, logsumexp_TN, *batch, heads, shape);
  }
  if (attention == nullptr || !levels)
    return ReferenceDevice::tree_attention_backward(dy_TC, y_TC, heads_TE, logsumexp_TN, segments,
                                                    heads, shape);
  const std::size_t undivided = levels->size();
  if (shape.ordered_backward)
    levels = divided_levels(*levels, ordered_rows(heads.num_heads), shape.window);
  // Where all have queries the first level writes every number.
  Tensor dheads_TE =
      are_all_queried(segments) ? at::empty_like(heads_TE) : at::zeros_like(heads_TE);
  if (levels->front().pairs.empty()) return dheads_TE;
  attention->backward(dy_TC, y_TC, heads_TE, logsumexp_TN, levels->front(), heads, shape,
                      dheads_TE);
  TreeAttentionShape unmasked = shape;
  unmasked.window = 0;
  // Pieces of a long sequence are many: each sum in 16 bits would round.
  Tensor sum_TE = levels->size() > undivided ? dheads_TE.to(at::kFloat) : dheads_TE;
  for (std::size_t i = 1; i < levels->size(); ++i) {
    Tensor more_TE = at::zeros_like(heads_TE);
    attention->backward(dy_TC, y_TC, heads_TE, logsumexp_TN, (*levels)[i], heads, unmasked,
                        more_TE);
    sum_TE.add_(more_TE);
  }
  return sum_TE.to(heads_TE.scalar_type());
}

void CudaDevice::softmax_statistics(const Tensor& logits_RV, const Tensor& target_R,
                                    double temperature, Tensor& logprob_R, Tensor& entropy_R,
                                    Tensor& logsumexp_R) const {
  const int64_t rows = logits_RV.size(0), vocabulary = logits_RV.size(1);
  if (logits_RV.scalar_type() != at::kFloat || !logits_RV.is_contiguous() ||
      !has_softmax_statistics(vocabulary))
    return ReferenceDevice::softmax_statistics(logits_RV, target_R, temperature, logprob_R,
                                               entropy_R, logsumexp_R);
  if (rows == 0) return;
  const Tensor sums = at::empty(
      {rows, sample_chunks(vocabulary) * static_cast<int64_t>(sizeof(ChunkSums) / sizeof(float))},
      logits_RV.options());
  SoftmaxCall call;
  call.logits_RV = logits_RV.const_data_ptr<float>();
  call.target_R = target_R.const_data_ptr<int64_t>();
  call.temperature = static_cast<float>(temperature);
  call.sums_RC = static_cast<ChunkSums*>(sums.data_ptr());
  call.logprob_R = logprob_R.data_ptr<float>();
  call.entropy_R = entropy_R.data_ptr<float>();
  call.logsumexp_R = logsumexp_R.data_ptr<float>();
  call.rows = rows;
  call.vocabulary = vocabulary;
  cuda::softmax_statistics(call, stream_of(logits_RV));
}

void CudaDevice::soft_cap_(Tensor x, double cap) const {
  const bool has_whole_packs = reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0;
  if (x.scalar_type() != at::kFloat || !x.is_contiguous() || !has_whole_packs)
    return ReferenceDevice::soft_cap_(x, cap);
  cuda::soft_cap(x.data_ptr<float>(), x.numel(), static_cast<float>(cap), stream_of(x));
}

Tensor CudaDevice::softmax_gradient(const Tensor& logits_RV, const Tensor& target_R,
                                    const LogitForm& form, const Tensor& logsumexp_R,
                                    const Tensor& entropy_R, const Tensor& dlogprob_R,
                                    const Tensor& dentropy_R, at::ScalarType precision) const {
  if (logits_RV.scalar_type() != at::kFloat || !logits_RV.is_contiguous())
    return ReferenceDevice::softmax_gradient(logits_RV, target_R, form, logsumexp_R, entropy_R,
                                             dlogprob_R, dentropy_R, precision);
  const Tensor dlogits_RV =
      precision == at::kFloat ? logits_RV
                              : at::empty(logits_RV.sizes(), logits_RV.options().dtype(precision));
  SoftmaxBackwardCall call;
  call.logits_RV = logits_RV.const_data_ptr<float>();
  call.target_R = target_R.const_data_ptr<int64_t>();
  call.logsumexp_R = logsumexp_R.const_data_ptr<float>();
  call.entropy_R = entropy_R.const_data_ptr<float>();
  call.dlogprob_R = dlogprob_R.const_data_ptr<float>();
  call.dentropy_R = dentropy_R.defined() ? dentropy_R.const_data_ptr<float>() : nullptr;
  call.dlogits_RV = dlogits_RV.data_ptr();
  call.number = number_of(dlogits_RV);
  call.temperature = static_cast<float>(form.temperature);
  call.inverse_cap = form.cap > 0 ? static_cast<float>(1 / form.cap) : 0.0F;
  call.rows = logits_RV.size(0);
  call.vocabulary = logits_RV.size(1);
  cuda::softmax_backward(call, stream_of(logits_RV));
  return dlogits_RV;
}

}  // namespace slime::kernels::cuda
