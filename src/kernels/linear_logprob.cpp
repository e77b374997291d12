#include "kernels/linear_logprob.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/device.h"
#include "kernels/kept_param.h"
#include "kernels/pick_rows.h"
#include "kernels/soft_cap.h"
#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t chunk_rows(const Matrix& head_VH, const LinearLogProbOptions& options) {
  const int64_t row_bytes = head_VH.outputs() * 4;
  const int64_t bytes = head_VH.values.is_cuda() ? options.gpu_chunk_bytes : options.chunk_bytes;
  return std::max<int64_t>(1, bytes / row_bytes);
}

/// A logit that no softmax sees: its exponential is 0 at any temperature, and 0 times it is no NaN.
constexpr double kDropped = -1e30;

/// The chunk's logits as the nucleus left them, in memory of their own.
Tensor keep_nucleus(const Tensor& logits_RV, const Tensor& target_R, const KeptTokens& kept,
                    int64_t begin) {
  const int64_t rows = logits_RV.size(0);
  const auto* offsets = kept.offsets.const_data_ptr<int64_t>();
  const int64_t first = offsets[begin], last = offsets[begin + rows];
  const Tensor counts =
      kept.offsets.narrow(0, begin + 1, rows) - kept.offsets.narrow(0, begin, rows);
  const Tensor row =
      at::repeat_interleave(at::arange(rows, at::kLong), counts).to(logits_RV.device());
  Tensor dropped_RV = at::ones_like(logits_RV, at::kBool);
  const Tensor no = at::zeros({}, dropped_RV.options());
  dropped_RV.index_put_({row, kept.ids.narrow(0, first, last - first).to(logits_RV.device())}, no);
  // A target of another rank's slice is -1.
  const Tensor own = (target_R >= 0).nonzero().squeeze(1);
  dropped_RV.index_put_({own, target_R.index_select(0, own)}, no);
  return logits_RV.masked_fill(dropped_RV, kDropped);
}

/// What the softmax sees of a chunk, but for the temperature.
Tensor logits_of(const Device& device, const Tensor& hidden_RH, const Matrix& head_VH, double cap) {
  Tensor logits_RV = adapted_logits(hidden_RH, head_VH);
  if (cap > 0) device.soft_cap_(logits_RV, cap);
  return logits_RV;
}

struct Statistics {
  Tensor logprob_R, entropy_R, logsumexp_R;
  Tensor kept_logsumexp_R;  // over the nucleus; defined with kept tokens only
  Tensor listed_A;          // defined with listed tokens only
};

/// The rows of the flat tokens of rows [begin, begin + size), counted from `begin`, on the device of `like`.
Tensor rows_of(const Tensor& offsets, int64_t begin, int64_t size, const Tensor& like) {
  const Tensor counts = offsets.narrow(0, begin + 1, size) - offsets.narrow(0, begin, size);
  return at::repeat_interleave(at::arange(size, at::kLong), counts).to(like.device());
}

/// Where the flat tokens of rows [begin, begin + size) are.
std::pair<int64_t, int64_t> place_of(const Tensor& offsets, int64_t begin, int64_t size) {
  const auto* first = offsets.const_data_ptr<int64_t>();
  return {first[begin], first[begin + size] - first[begin]};
}

/// Logits of listed tokens and of the targets they are compared with: 0 for those of another rank's slice.
struct ListedLogits {
  Tensor listed_A, target_R;

  ListedLogits(const KeptTokens& listed, int64_t rows, const at::TensorOptions& floats)
      : listed_A(at::empty({listed.ids.size(0)}, floats)), target_R(at::empty({rows}, floats)) {}

  void take(const Tensor& logits_RV, const Tensor& target_chunk, const KeptTokens& listed,
            int64_t begin) {
    const int64_t rows = logits_RV.size(0);
    const auto pick = [&](const Tensor& row, const Tensor& column) {
      return logits_RV.index({row, column.clamp_min(0)}).masked_fill(column < 0, 0);
    };
    const Tensor each = at::arange(rows, target_chunk.options());
    target_R.narrow(0, begin, rows).copy_(pick(each, target_chunk));
    const auto [first, count] = place_of(listed.offsets, begin, rows);
    listed_A.narrow(0, first, count)
        .copy_(pick(rows_of(listed.offsets, begin, rows, logits_RV),
                    listed.ids.narrow(0, first, count)));
  }

  /// By their distance from the target, so that the target's own is its log-prob to the last bit.
  Tensor log_probs(const Tensor& logprob_R, const LinearLogProbOptions& options) const {
    if (options.vocabulary.sum_) {
      options.vocabulary.sum_(listed_A);
      options.vocabulary.sum_(target_R);
    }
    const Tensor& offsets = options.listed_tokens.offsets;
    const Tensor row_A = rows_of(offsets, 0, logprob_R.size(0), logprob_R);
    return logprob_R.index_select(0, row_A) +
           (listed_A - target_R.index_select(0, row_A)) / options.temperature;
  }
};

/// dlogprob_R and, in each row, the gradients of its listed tokens.
Tensor with_listed(const Tensor& dlogprob_R, const Tensor& row_A, const Tensor& dlisted_A) {
  Tensor sum_R = dlogprob_R.clone();
  kernels_for(sum_R).add_rows_(sum_R, row_A, dlisted_A);
  return sum_R;
}

/// Adds to dlogits_RV, the gradient of log-probs of targets with dlogprob_R and all that of a chunk's listed tokens,
/// what it lacks of these: the logits are those of the listed tokens, not the targets'.
void move_to_listed(const Tensor& dlogits_RV, const Tensor& target_R, const Tensor& dlisted_A,
                    const KeptTokens& listed, int64_t begin, double temperature) {
  const int64_t rows = dlogits_RV.size(0);
  const auto [first, count] = place_of(listed.offsets, begin, rows);
  const Tensor row = rows_of(listed.offsets, begin, rows, dlogits_RV);
  const Tensor column = listed.ids.narrow(0, first, count);
  const Tensor gradient = dlisted_A.narrow(0, first, count) / temperature;
  const auto add = [&](const Tensor& at_row, const Tensor& at_column, const Tensor& x) {
    const Tensor own = (at_column >= 0).nonzero().squeeze(1);
    dlogits_RV.index_put_({at_row.index_select(0, own), at_column.index_select(0, own)},
                          x.index_select(0, own), /*accumulate=*/true);
  };
  const Tensor all_R = sum_rows(gradient, row, rows);
  add(row, column, gradient);
  add(at::arange(rows, target_R.options()), target_R, -all_R);
}

/// Target ids as columns of a slice with `size` of them; -1: in another one.
Tensor columns_of(const Tensor& target_R, int64_t begin, int64_t size) {
  const Tensor column_R = target_R - begin;
  return column_R.masked_fill((column_R < 0).logical_or(column_R >= size), -1);
}

/// The kept ids of a slice, as its columns.
KeptTokens columns_of(const KeptTokens& kept, int64_t begin, int64_t size) {
  const Tensor column = kept.ids - begin;
  const Tensor inside = (column >= 0).logical_and(column < size);
  const Tensor before = at::constant_pad_nd(inside.to(at::kLong).cumsum(0).cpu(), {1, 0});
  return {column.masked_select(inside), before.index_select(0, kept.offsets)};
}

/// Statistics of the ranks' slices become those of the whole vocabulary.
void merge(Statistics& own, const VocabularySlice& vocabulary) {
  const bool has_nucleus = own.kept_logsumexp_R.defined();
  const Tensor& logsumexp_R = own.logsumexp_R;
  // Of the target's logit: log-probs count another rank's as 0.
  const Tensor target_R = own.logprob_R + (has_nucleus ? own.kept_logsumexp_R : logsumexp_R);
  const Tensor largest_2R =
      at::stack({logsumexp_R, has_nucleus ? own.kept_logsumexp_R : logsumexp_R});
  const Tensor below_2R = largest_2R.clone();
  vocabulary.max_(largest_2R);
  below_2R.sub_(largest_2R);
  const Tensor share_2R = below_2R.exp();
  const Tensor weighted_R = share_2R[0] * (own.entropy_R - below_2R[0]);
  const Tensor sums_4R = at::stack({share_2R[0], share_2R[1], weighted_R, target_R});
  vocabulary.sum_(sums_4R);
  const Tensor log_sum_R = sums_4R[0].log();
  own.logsumexp_R = largest_2R[0] + log_sum_R;
  own.entropy_R = log_sum_R + sums_4R[2] / sums_4R[0];
  if (has_nucleus) own.kept_logsumexp_R = largest_2R[1] + sums_4R[1].log();
  own.logprob_R = sums_4R[3] - (has_nucleus ? own.kept_logsumexp_R : own.logsumexp_R);
}

/// `kept`, unless null, receives the logits of the first chunks, as many as `options` allow.
Statistics forward_chunks(const Tensor& hidden_RH, const MatrixParam& head, const Tensor& target_R,
                          const LinearLogProbOptions& options, std::vector<Tensor>* kept) {
  const int64_t rows = hidden_RH.size(0);
  const auto floats = hidden_RH.options().dtype(accumulator_of(hidden_RH));
  Statistics out{at::empty({rows}, floats), at::empty({rows}, floats), at::empty({rows}, floats),
                 Tensor()};
  if (options.kept_tokens.ids.defined()) out.kept_logsumexp_R = at::empty({rows}, floats);
  std::optional<ListedLogits> listed;
  if (options.listed_tokens.ids.defined()) listed.emplace(options.listed_tokens, rows, floats);
  const Device& device = kernels_for(hidden_RH);
  const int64_t step = chunk_rows(head.matrix, options), row_bytes = head.matrix.outputs() * 4;
  const bool keeps =
      kept != nullptr && (options.keeps_some || rows * row_bytes <= options.kept_bytes);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t size = std::min(step, rows - begin);
    const Tensor logits_RV =
        logits_of(device, hidden_RH.narrow(0, begin, size), head.matrix, options.cap);
    Tensor logprob = out.logprob_R.narrow(0, begin, size);
    Tensor entropy = out.entropy_R.narrow(0, begin, size);
    Tensor logsumexp = out.logsumexp_R.narrow(0, begin, size);
    device.softmax_statistics(logits_RV, target_R.narrow(0, begin, size), options.temperature,
                              logprob, entropy, logsumexp);
    if (options.kept_tokens.ids.defined()) {
      const Tensor target = target_R.narrow(0, begin, size);
      Tensor kept_logsumexp = out.kept_logsumexp_R.narrow(0, begin, size);
      Tensor unused = at::empty_like(entropy);
      device.softmax_statistics(keep_nucleus(logits_RV, target, options.kept_tokens, begin), target,
                                options.temperature, logprob, unused, kept_logsumexp);
    }
    if (listed)
      listed->take(logits_RV, target_R.narrow(0, begin, size), options.listed_tokens, begin);
    if (keeps && (begin + size) * row_bytes <= options.kept_bytes) kept->push_back(logits_RV);
  }
  if (options.vocabulary.sum_) merge(out, options.vocabulary);
  if (listed) out.listed_A = listed->log_probs(out.logprob_R, options);
  return out;
}

struct LinearLogProb : torch::autograd::Function<LinearLogProb> {
  static variable_list forward(AutogradContext* ctx, const Tensor& hidden_RH,
                               const MatrixParam& head, const Tensor& target_R,
                               const LinearLogProbOptions& options) {
    std::vector<Tensor> kept;
    Statistics out = forward_chunks(hidden_RH, head, target_R, options, &kept);
    ctx->saved_data["kept"] = kept;
    ctx->save_for_backward({hidden_RH, out.entropy_R, out.logsumexp_R});
    ctx->saved_data["target"] = target_R;
    keep(ctx, "head", head);
    ctx->saved_data["temperature"] = options.temperature;
    ctx->saved_data["cap"] = options.cap;
    ctx->saved_data["entropy_gradient"] = options.entropy_gradient;
    ctx->saved_data["chunk_bytes"] = options.chunk_bytes;
    ctx->saved_data["kept_ids"] = options.kept_tokens.ids;
    ctx->saved_data["kept_offsets"] = options.kept_tokens.offsets;
    ctx->saved_data["kept_logsumexp"] = out.kept_logsumexp_R;
    ctx->saved_data["listed_ids"] = options.listed_tokens.ids;
    ctx->saved_data["listed_offsets"] = options.listed_tokens.offsets;
    if (!options.entropy_gradient) ctx->mark_non_differentiable({out.entropy_R});
    if (!out.listed_A.defined()) return {out.logprob_R, out.entropy_R};
    return {out.logprob_R, out.entropy_R, out.listed_A};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &hidden_RH = saved[0], &entropy_R = saved[1], &logsumexp_R = saved[2];
    const Tensor target_R = ctx->saved_data["target"].toTensor();
    const MatrixParam head = kept_matrix_param(ctx, "head");
    const Matrix& head_VH = head.matrix;
    const LinearLogProbOptions options{ctx->saved_data["temperature"].toDouble(),
                                       ctx->saved_data["entropy_gradient"].toBool(),
                                       ctx->saved_data["chunk_bytes"].toInt()};
    const double cap = ctx->saved_data["cap"].toDouble();
    const KeptTokens nucleus{ctx->saved_data["kept_ids"].toTensor(),
                             ctx->saved_data["kept_offsets"].toTensor()};
    const Tensor kept_logsumexp_R = ctx->saved_data["kept_logsumexp"].toTensor();
    const Device& device = kernels_for(hidden_RH);
    std::vector<Tensor> kept = ctx->saved_data["kept"].toTensorVector();
    ctx->saved_data.erase("kept");  // consumed in place, chunk by chunk
    const KeptTokens listed{ctx->saved_data["listed_ids"].toTensor(),
                            ctx->saved_data["listed_offsets"].toTensor()};
    const Tensor dlisted_A = listed.ids.defined() ? grads[2] : Tensor();
    // What listed tokens lose to all others, each row loses once for all of them.
    const Tensor dlogprob_R =
        dlisted_A.defined()
            ? with_listed(grads[0], rows_of(listed.offsets, 0, hidden_RH.size(0), hidden_RH),
                          dlisted_A)
            : grads[0].contiguous();
    const Tensor dentropy_R = options.entropy_gradient ? grads[1].contiguous() : Tensor();

    const int64_t rows = hidden_RH.size(0);
    const int64_t step = chunk_rows(head_VH, options);
    Tensor dhidden_RH = at::empty_like(hidden_RH);
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t size = std::min(step, rows - begin);
      const Tensor hidden = hidden_RH.narrow(0, begin, size);
      const auto chunk = static_cast<size_t>(begin / step);
      Tensor dlogits_RV = chunk < kept.size() ? std::exchange(kept[chunk], {})
                                              : logits_of(device, hidden, head_VH, cap);
      const auto of_chunk = [&](const Tensor& x_R) {
        return x_R.defined() ? x_R.narrow(0, begin, size) : Tensor();
      };
      const Tensor target = of_chunk(target_R);
      if (nucleus.ids.defined()) {
        // The log-prob is that of the nucleus, the entropy that of the whole vocabulary.
        Tensor through_nucleus = keep_nucleus(dlogits_RV, target, nucleus, begin);
        const Tensor slope_RV = cap > 0 ? soft_cap_slope(dlogits_RV, cap) : Tensor();
        device.softmax_backward_(through_nucleus, target, options.temperature,
                                 of_chunk(kept_logsumexp_R), of_chunk(entropy_R),
                                 of_chunk(dlogprob_R), Tensor());
        if (dentropy_R.defined()) {
          device.softmax_backward_(dlogits_RV, target, options.temperature, of_chunk(logsumexp_R),
                                   of_chunk(entropy_R), at::zeros_like(of_chunk(dlogprob_R)),
                                   of_chunk(dentropy_R));
          through_nucleus += dlogits_RV;
        }
        if (dlisted_A.defined())
          move_to_listed(through_nucleus, target, dlisted_A, listed, begin, options.temperature);
        if (slope_RV.defined()) through_nucleus *= slope_RV;
        dlogits_RV = through_nucleus.to(hidden.scalar_type());
      } else if (dlisted_A.defined()) {
        const Tensor slope_RV = cap > 0 ? soft_cap_slope(dlogits_RV, cap) : Tensor();
        device.softmax_backward_(dlogits_RV, target, options.temperature, of_chunk(logsumexp_R),
                                 of_chunk(entropy_R), of_chunk(dlogprob_R), of_chunk(dentropy_R));
        move_to_listed(dlogits_RV, target, dlisted_A, listed, begin, options.temperature);
        if (slope_RV.defined()) dlogits_RV *= slope_RV;
        dlogits_RV = dlogits_RV.to(hidden.scalar_type());
      } else {
        dlogits_RV = device.softmax_gradient(
            dlogits_RV, target, {options.temperature, cap}, of_chunk(logsumexp_R),
            of_chunk(entropy_R), of_chunk(dlogprob_R), of_chunk(dentropy_R), hidden.scalar_type());
      }
      add_adapted_weight_grad_(head, dlogits_RV, hidden);
      dhidden_RH.narrow(0, begin, size).copy_(adapted_input_grad(dlogits_RV, head_VH));
    }
    return {dhidden_RH, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

LogProbs linear_logprob(const Tensor& hidden_RH, const MatrixParam& head_VH, const Tensor& ids_R,
                        const LinearLogProbOptions& given) {
  const TraceRange range("linear_logprob");
  LinearLogProbOptions options = given;
  Tensor target_R = ids_R;
  if (options.vocabulary.sum_) {
    const int64_t begin = options.vocabulary.begin, size = head_VH.matrix.outputs();
    target_R = columns_of(ids_R, begin, size);
    if (options.kept_tokens.ids.defined())
      options.kept_tokens = columns_of(options.kept_tokens, begin, size);
    if (options.listed_tokens.ids.defined())
      options.listed_tokens.ids = columns_of(options.listed_tokens.ids, begin, size);
  }
  if (options.listed_tokens.ids.defined())
    options.listed_tokens.ids = options.listed_tokens.ids.to(hidden_RH.device());
  check(options.temperature > 0, "the temperature of log-probs is positive");
  check(hidden_RH.size(0) == target_R.size(0), "every scored row has a target");
  check(!options.kept_tokens.ids.defined() ||
            options.kept_tokens.offsets.size(0) == target_R.size(0) + 1,
        "every scored row has its kept tokens");
  check(!options.listed_tokens.ids.defined() ||
            options.listed_tokens.offsets.size(0) == target_R.size(0) + 1,
        "every scored row has its listed tokens");
  const Tensor hidden = hidden_RH.contiguous();
  if (at::GradMode::is_enabled() && hidden.requires_grad()) {
    const variable_list out =
        LinearLogProb::apply(hidden, in_this_pass(head_VH), target_R, options);
    return {out[0], out[1], out.size() > 2 ? out[2] : Tensor()};
  }
  const Statistics out = forward_chunks(hidden, head_VH, target_R, options, nullptr);
  return {out.logprob_R, out.entropy_R, out.listed_A};
}

}  // namespace slime::kernels
