#include "model/tree_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/causal_conv.h"
#include "kernels/gated_delta.h"
#include "kernels/linear.h"
#include "kernels/rotary.h"
#include "kernels/tree_attention.h"
#include "kernels/with_value.h"
#include "model/absorbed_latent.h"

namespace slime::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kKeys = "what rows of a layer bring to those behind them";

int64_t num_rows(const ContextRows& rows) { return rows.of_rank.back().end; }

/// Rows of numbers as shards of a flat buffer.
std::vector<comm::Range> shards_of(const std::vector<comm::Range>& rows, int64_t width) {
  std::vector<comm::Range> shards;
  for (const comm::Range& range : rows) shards.push_back({range.begin * width, range.end * width});
  return shards;
}

Tensor of_all_ranks(const Tensor& own_LE, const ContextRows& rows) {
  const comm::Range own = rows.of_rank[rows.ranks.rank()];
  const Tensor all_TE = at::empty({num_rows(rows), own_LE.size(1)}, own_LE.options());
  all_TE.narrow(0, own.begin, own.size()).copy_(own_LE);
  rows.ranks.all_gather_(all_TE.view({-1}), shards_of(rows.of_rank, own_LE.size(1)), kKeys);
  return all_TE;
}

/// This rank's rows of the sum over the ranks; `all_TE` is contiguous and overwritten.
Tensor summed_at_owners(const Tensor& all_TE, const ContextRows& rows) {
  const comm::Range own = rows.of_rank[rows.ranks.rank()];
  rows.ranks.reduce_scatter_(all_TE.view({-1}), shards_of(rows.of_rank, all_TE.size(1)), kKeys);
  return all_TE.narrow(0, own.begin, own.size());
}

/// Heads of this rank's rows [L, E] to those of all rows [T, E], of which other ranks' queries are
/// zeros.
struct GatherKeys : torch::autograd::Function<GatherKeys> {
  static Tensor forward(AutogradContext* ctx, const Tensor& heads_LE, const ContextRows* rows,
                        int64_t query_width) {
    ctx->saved_data["rows"] = reinterpret_cast<int64_t>(rows);
    ctx->saved_data["query_width"] = query_width;
    const int64_t width = heads_LE.size(1) - query_width;
    const comm::Range own = rows->of_rank[rows->ranks.rank()];
    Tensor heads_TE = at::zeros({num_rows(*rows), heads_LE.size(1)}, heads_LE.options());
    heads_TE.narrow(1, query_width, width)
        .copy_(of_all_ranks(heads_LE.narrow(1, query_width, width), *rows));
    heads_TE.narrow(0, own.begin, own.size())
        .narrow(1, 0, query_width)
        .copy_(heads_LE.narrow(1, 0, query_width));
    return heads_TE;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto* rows = reinterpret_cast<const ContextRows*>(ctx->saved_data["rows"].toInt());
    const int64_t query_width = ctx->saved_data["query_width"].toInt();
    const int64_t width = grads[0].size(1) - query_width;
    const comm::Range own = rows->of_rank[rows->ranks.rank()];
    const Tensor own_LE = at::cat(
        {grads[0].narrow(0, own.begin, own.size()).narrow(1, 0, query_width),
         summed_at_owners(
             grads[0].narrow(1, query_width, width).clone(at::MemoryFormat::Contiguous), *rows)},
        1);
    return {own_LE, Tensor(), Tensor()};
  }
};

}  // namespace

TreeAttention::TreeAttention(const TokenBatch& batch) : rows_(batch, comm::Mesh::single()) {
  const std::vector<Segment>& segments = batch.segments;
  int64_t next = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    check(segment.begin == next && segment.end > segment.begin,
          "segments cover the batch in order and are not empty");
    check(segment.parent >= -1 && segment.parent < static_cast<int64_t>(i),
          "a segment's parent comes before it");
    next = segment.end;
  }
  check(next == batch.num_tokens(), "segments cover the batch");
}

Tensor TreeAttention::attended(const Tensor& heads_LE, const kernels::RotaryShape& heads,
                               const kernels::TreeAttentionShape& shape,
                               const kernels::Param& sinks) const {
  if (rows_.ranks.is_alone())
    return kernels::tree_attention(heads_LE, rows_.pieces, heads, shape, sinks);
  const Tensor heads_TE =
      GatherKeys::apply(heads_LE.contiguous(), &rows_, heads.num_heads * heads.head_dim);
  const comm::Range own = rows_.of_rank[rows_.ranks.rank()];
  return kernels::tree_attention(heads_TE, rows_.pieces, heads, shape, sinks)
      .narrow(0, own.begin, own.size());
}

Tensor TreeAttention::attend(const AttentionLayer& layer, const Tensor& qkv_TE,
                             const Tensor& positions_T) {
  const kernels::RotaryShape heads{layer.num_heads, layer.num_kv_heads, layer.head_dim,
                                   layer.norm_eps};
  const Tensor heads_TE = kernels::norm_rotate(qkv_TE, positions_T, layer.q_norm, layer.k_norm,
                                               layer.cos_PR, layer.sin_PR, heads);
  return attended(heads_TE, heads,
                  {layer.scale, layer.window, layer.score_cap, in_pages_, ordered_backward_},
                  layer.sinks);
}

const TokenChoice* TreeAttention::choice_of(int layer) const {
  const auto found = choices_.find(layer);
  return found == choices_.end() ? nullptr : &found->second;
}

const TokenChoice& TreeAttention::chosen(const LatentLayer& layer, const LatentInput& in) {
  if (!in.index) return choices_.at(layer.index_source);
  if (last_choice_ >= 0 && last_choice_ != layer.index) choices_.erase(last_choice_);
  last_choice_ = layer.lends_choice ? -1 : layer.index;
  TokenChoice& choice = choices_[layer.index];
  if (rows_.ranks.is_alone()) {
    choice = choose_tokens(*in.index, rows_.pieces, layer.index_count);
    return choice;
  }
  const RowShares shares = row_shares();
  IndexInput index = *in.index;
  index.key_TD = gathered_rows(index.key_TD.contiguous(), shares);
  choice = choose_tokens(index, rows_.pieces, layer.index_count, shares.begin());
  return choice;
}

RowShares TreeAttention::row_shares() const {
  RowShares shares{rows_.ranks, {}};
  for (const comm::Range& range : rows_.of_rank) shares.counts.push_back(range.size());
  return shares;
}

Tensor TreeAttention::attended_sparsely(const LatentLayer& layer, const TokenChoice& choice,
                                        const Tensor& query_LND, const Tensor& key_LND,
                                        const Tensor& value_LNV) const {
  if (rows_.ranks.is_alone()) {
    return sparse_attention(query_LND, key_LND, value_LNV.contiguous(), {choice, rows_.pieces},
                            layer.scale);
  }
  const RowShares shares = row_shares();
  const Tensor both_TNE = gathered_rows(at::cat({key_LND, value_LNV}, 2), shares);
  const int64_t size = key_LND.size(2);
  return sparse_attention(query_LND, both_TNE.narrow(2, 0, size),
                          both_TNE.narrow(2, size, layer.value_dim).contiguous(),
                          {choice, rows_.pieces, shares.begin()}, layer.scale);
}

Tensor TreeAttention::attend_latent(const LatentLayer& layer, const LatentInput& in,
                                    const Tensor& positions_T) {
  if (!in_pages_) return attend_expanded(layer, in, positions_T);
  // The engine's numbers; gradients are those of the expanded form, which is the same function.
  const Tensor value_TC = absorbed(layer, in, positions_T);
  if (!at::GradMode::is_enabled()) return value_TC;
  return kernels::with_value(attend_expanded(layer, in, positions_T), value_TC);
}

Tensor TreeAttention::attend_expanded(const LatentLayer& layer, const LatentInput& in,
                                      const Tensor& positions_T) {
  const int64_t tokens = in.latent_TL.size(0), heads = layer.num_heads, rotary = layer.rotary_dim,
                size = layer.plain_dim + rotary;
  const auto flat = [&](const Tensor& x) { return x.reshape({tokens, -1}); };
  // All rotating numbers as heads of their own; the value head is not looked at.
  const Tensor rotated_TE = kernels::norm_rotate(
      at::cat({flat(in.rotary_query_TNR), in.rotary_key_TR, in.rotary_key_TR}, 1), positions_T, {},
      {}, layer.cos_PR, layer.sin_PR, {heads, 1, rotary, 0});
  const Tensor query_TNR = rotated_TE.narrow(1, 0, heads * rotary).view({tokens, heads, rotary});
  const Tensor key_TNR =
      rotated_TE.narrow(1, heads * rotary, rotary).unsqueeze(1).expand({tokens, heads, rotary});
  const Tensor expanded_TNE = kernels::linear(in.latent_TL, layer.expand).view({tokens, heads, -1});
  if (layer.index_count > 0) {
    return flat(attended_sparsely(layer, chosen(layer, in),
                                  at::cat({query_TNR, in.plain_query_TNP}, 2),
                                  at::cat({key_TNR, expanded_TNE.narrow(2, 0, layer.plain_dim)}, 2),
                                  expanded_TNE.narrow(2, layer.plain_dim, layer.value_dim)));
  }
  // Kernels have one size for keys and values: what values lack is zeros.
  const Tensor value_TND = at::constant_pad_nd(
      expanded_TNE.narrow(2, layer.plain_dim, layer.value_dim), {0, size - layer.value_dim});
  const Tensor heads_TE = at::cat(
      {flat(at::cat({query_TNR, in.plain_query_TNP}, 2)),
       flat(at::cat({key_TNR, expanded_TNE.narrow(2, 0, layer.plain_dim)}, 2)), flat(value_TND)},
      1);
  const Tensor attended_TC = attended(heads_TE, {heads, heads, size, 0},
                                      {layer.scale, 0, 0, false, ordered_backward_}, {});
  return flat(attended_TC.view({tokens, heads, size}).narrow(2, 0, layer.value_dim));
}

Tensor TreeAttention::absorbed(const LatentLayer& layer, const LatentInput& in,
                               const Tensor& positions_T) const {
  const at::NoGradGuard no_grad;
  check(layer.index_count == 0, "sparse attention has no form in pages");
  const AttentionLayer shared = absorbed_layer(layer);
  const Tensor heads_TE = absorbed_heads(layer, in);
  return expanded_values(layer,
                         kernels::kernels_for(heads_TE).latent_attention_in_pages(
                             heads_TE, positions_T, shared.cos_PR, shared.sin_PR, rows_.pieces,
                             {shared.num_heads, 1, shared.head_dim, 0}, {shared.scale, 0}));
}

Tensor TreeAttention::attend_delta(const DeltaLayer& layer, const kernels::DeltaTokens& in) {
  if (!delta_plan_) {
    delta_plan_ = kernels::make_delta_plan(rows_.pieces, layer.taps, /*have_start=*/false,
                                           in.mixed_TE.device());
  }
  if (rows_.ranks.is_alone()) {
    check(!in_pages_, "gated delta nets have no form with the engine's bits");
    const Tensor mixed_TE = kernels::causal_conv(in.mixed_TE, layer.conv, *delta_plan_);
    return kernels::gated_delta({mixed_TE, in.decay_TN, in.rate_TN}, layer.shape, *delta_plan_);
  }
  // A state goes through the rows of all ranks: each rank computes it over all of them.
  const int64_t heads = layer.shape.value_heads;
  const RowShares shares = row_shares();
  const Tensor mixed_TE = kernels::causal_conv(gathered_rows(in.mixed_TE.contiguous(), shares),
                                               layer.conv, *delta_plan_);
  const Tensor rates_T2N = gathered_rows(at::cat({in.decay_TN, in.rate_TN}, 1), shares);
  return kernels::gated_delta({mixed_TE, rates_T2N.narrow(1, 0, heads).contiguous(),
                               rates_T2N.narrow(1, heads, heads).contiguous()},
                              layer.shape, *delta_plan_)
      .narrow(0, shares.begin(), shares.own());
}

}  // namespace slime::model
