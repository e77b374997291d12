#include "model/layers/grouped_query_attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "kernels/device.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/layers/head_norm.h"
#include "model/layers/norm_weight.h"

namespace slime::model {
namespace {

GroupedQueryShape shape_of(const ModelConfig& config) {
  return {config.hidden_size,     config.num_heads, config.num_kv_heads,
          config.head_dim,        config.qk_norm,   config.has_qkv_bias,
          config.has_output_bias, config.has_sinks, config.has_output_gate};
}

/// Heads stay whole: a rank holds heads / tp of them.
Slice slice_of_heads(const LayerSite& site, int dim, int64_t heads) {
  Slice slice = tensor_parallel_slice(site.mesh, dim, heads);
  slice.begin *= site.config.head_dim;
  slice.end *= site.config.head_dim;
  return slice;
}

/// Queries and keys with the numbers of each head in this order, values as they are.
Tensor column_order(const Tensor& head_order_D, const AttentionLayer& layer) {
  const int64_t dim = layer.head_dim, rotated = layer.num_heads + layer.num_kv_heads;
  const Tensor order_E = at::arange((rotated + layer.num_kv_heads) * dim, head_order_D.options());
  order_E.narrow(0, 0, rotated * dim)
      .view({rotated, dim})
      .add_(head_order_D - at::arange(dim, head_order_D.options()));
  return order_E;
}

}  // namespace

Costs grouped_query_costs(const GroupedQueryShape& shape) {
  const int64_t h = shape.hidden, q = shape.num_heads * shape.head_dim,
                kv = 2 * shape.num_kv_heads * shape.head_dim, heads = q + kv;
  Costs costs;
  costs.parameters =
      (heads + q) * h + (shape.has_qkv_bias ? heads : 0) + (shape.has_output_bias ? h : 0);
  if (shape.qk_norm == QkNorm::kPerHead) costs.parameters += 2 * shape.head_dim;
  if (shape.qk_norm == QkNorm::kAllHeads) costs.parameters += q + kv / 2;
  if (shape.has_sinks) costs.parameters += shape.num_heads;
  if (shape.has_gate) costs.parameters += q * h;
  costs.flops_per_token = 2 * h * (heads + (shape.has_gate ? q : 0)) + 2 * h * h;
  costs.flops_per_pair = 4 * q;  // a score and a sum of values
  // Heads after the rotation; before it only where a norm reads them; what attention returns, with
  // its statistics.
  int64_t projected = heads;
  if (shape.qk_norm == QkNorm::kPerHead) projected += heads;
  if (shape.qk_norm == QkNorm::kAllHeads) projected += q + kv / 2;
  if (shape.has_gate) projected += 3 * q;  // the gate, its sigmoid, what it multiplies
  costs.saved = costs.saved_selective = projected + q;
  costs.saved_float32 = shape.num_heads;
  costs.gradients = heads + q;
  costs.passing =
      (shape.qk_norm == QkNorm::kAllHeads ? 3 : 2) * heads + (shape.has_gate ? 3 * q : 0);
  return costs;
}

GroupedQueryAttention::GroupedQueryAttention(const LayerSite& site)
    : tp_(site.mesh), shape_(shape_of(site.config)), norms_add_one_(site.config.norms_add_one) {
  const int64_t hidden = shape_.hidden, dim = shape_.head_dim;
  const int64_t q = shape_.num_heads * dim, kv = shape_.num_kv_heads * dim;
  const Slice q_rows = slice_of_heads(site, 0, shape_.num_heads),
              kv_rows = slice_of_heads(site, 0, shape_.num_kv_heads);
  const int64_t gated_q = shape_.has_gate ? 2 * q : q;  // each head with its gate
  const Slice gated_q_rows =
      shape_.has_gate && q_rows.dim >= 0 ? Slice{0, 2 * q_rows.begin, 2 * q_rows.end} : q_rows;
  // Whole on every rank, and each sees some of the heads, or (biases of sums) one rank adds it.
  const bool is_partial = !tp_.is_alone();
  Weights::Builder& builder = site.builder;
  Product& projection = products_.first;
  Product& output = products_.last;

  if (site.config.has_fused_qkv) {
    builder.add(projection.weight_OI, {{site.name("self_attn.qkv_proj.weight"),
                                        {q + 2 * kv, hidden},
                                        {q_rows, shifted(kv_rows, q), shifted(kv_rows, q + kv)}}});
  } else {
    builder.add(projection.weight_OI,
                {{site.name("self_attn.q_proj.weight"), {gated_q, hidden}, gated_q_rows},
                 {site.name("self_attn.k_proj.weight"), {kv, hidden}, kv_rows},
                 {site.name("self_attn.v_proj.weight"), {kv, hidden}, kv_rows}});
  }
  if (shape_.has_qkv_bias) {
    builder.add(projection.bias_O, {{site.name("self_attn.q_proj.bias"), {q}, q_rows},
                                    {site.name("self_attn.k_proj.bias"), {kv}, kv_rows},
                                    {site.name("self_attn.v_proj.bias"), {kv}, kv_rows}});
  }
  const Tensor& head_order_D = site.rotary.head_order_D;
  if (shape_.qk_norm == QkNorm::kPerHead) {
    const bool is_own = head_order_D.defined();  // files order the norms as they order the heads
    builder.add(is_own ? own_q_norm_ : layer_.q_norm,
                {{site.name("self_attn.q_norm.weight"), {dim}, {}, is_partial}});
    builder.add(is_own ? own_k_norm_ : layer_.k_norm,
                {{site.name("self_attn.k_norm.weight"), {dim}, {}, is_partial}});
  }
  if (shape_.qk_norm == QkNorm::kAllHeads) {
    builder.add(own_q_norm_, {{site.name("self_attn.q_norm.weight"), {q}, q_rows}});
    builder.add(own_k_norm_, {{site.name("self_attn.k_norm.weight"), {kv}, kv_rows}});
  }
  builder.add(output.weight_OI, {{site.name("self_attn.o_proj.weight"),
                                  {hidden, q},
                                  slice_of_heads(site, 1, shape_.num_heads)}});
  if (shape_.has_output_bias)
    builder.add(output.bias_O, {{site.name("self_attn.o_proj.bias"), {hidden}, {}, is_partial}});

  if (shape_.has_sinks) {
    builder.add(layer_.sinks, {{site.name("self_attn.sinks"),
                                {shape_.num_heads},
                                tensor_parallel_slice(site.mesh, 0, shape_.num_heads)}});
  }

  layer_.index = site.index;
  layer_.num_heads = shape_.num_heads / tp_.ranks.size();
  layer_.num_kv_heads = shape_.num_kv_heads / tp_.ranks.size();
  layer_.head_dim = dim;
  const double scalar = site.config.query_scalar;
  layer_.scale = 1 / std::sqrt(scalar > 0 ? scalar : static_cast<double>(dim));
  layer_.score_cap = site.config.score_cap;
  layer_.window = site.config.window[static_cast<size_t>(site.index)];
  layer_.norm_eps = site.config.norm_eps;
  layer_.cos_PR = site.rotary.cos_PR;
  layer_.sin_PR = site.rotary.sin_PR;
  if (head_order_D.defined()) column_order_E_ = column_order(head_order_D, layer_);
}

CacheSpec GroupedQueryAttention::cache() const {
  return {.heads = layer_.num_kv_heads,
          .queries_per_head = layer_.num_heads / layer_.num_kv_heads,
          .key_size = layer_.head_dim,
          .value_size = layer_.head_dim};
}

std::string GroupedQueryAttention::describe() const {
  const char* norm = "";
  if (shape_.qk_norm == QkNorm::kPerHead) norm = ", q/k norm";
  if (shape_.qk_norm == QkNorm::kAllHeads) norm = ", q/k norm over all heads";
  return fmt::format("{} query, {} key-value, size {}{}{}{}", shape_.num_heads, shape_.num_kv_heads,
                     shape_.head_dim, norm, shape_.has_gate ? ", gated" : "",
                     layer_.score_cap > 0 ? ", capped" : "");
}

Tensor GroupedQueryAttention::forward(const Tensor& input_TH, const Tensor& positions_T,
                                      Attention& attention) const {
  const Tensor qkv_TE = gathered_linear(input_TH, positions_T.size(0), products_.first, tp_);
  return summed_linear(mix(qkv_TE, positions_T, attention), products_.last, tp_);
}

Tensor GroupedQueryAttention::mix(const Tensor& qkv_TE, const Tensor& positions_T,
                                  Attention& attention) const {
  if (!shape_.has_gate) return attended(qkv_TE, positions_T, attention);
  const int64_t tokens = qkv_TE.size(0), heads = layer_.num_heads, dim = layer_.head_dim,
                q = heads * dim;
  const Tensor gated_TN2D = qkv_TE.narrow(1, 0, 2 * q).view({tokens, heads, 2, dim});
  const Tensor query_TC = gated_TN2D.select(2, 0).reshape({tokens, q}),
               gate_TC = gated_TN2D.select(2, 1).reshape({tokens, q});
  const Tensor seen_TC =
      attended(at::cat({query_TC, qkv_TE.narrow(1, 2 * q, qkv_TE.size(1) - 2 * q)}, 1), positions_T,
               attention);
  return seen_TC * gate_TC.sigmoid();
}

Tensor GroupedQueryAttention::attended(const Tensor& qkv_TE, const Tensor& positions_T,
                                       Attention& attention) const {
  Tensor heads_TE = own_q_norm_.defined() ? normed_heads(qkv_TE) : qkv_TE;
  if (column_order_E_.defined()) heads_TE = heads_TE.index_select(1, column_order_E_);
  if (!norms_add_one_ || !layer_.q_norm.defined())
    return attention.attend(layer_, heads_TE, positions_T);
  AttentionLayer layer = layer_;
  layer.q_norm = norm_weight(layer_.q_norm, true);
  layer.k_norm = norm_weight(layer_.k_norm, true);
  return attention.attend(layer, heads_TE, positions_T);
}

Tensor GroupedQueryAttention::normed_heads(const Tensor& qkv_TE) const {
  const int64_t tokens = qkv_TE.size(0), q = layer_.num_heads * layer_.head_dim,
                kv = layer_.num_kv_heads * layer_.head_dim;
  const Tensor value_TC = qkv_TE.narrow(1, q + kv, kv);
  if (shape_.qk_norm == QkNorm::kAllHeads && !tp_.is_alone()) {
    const Heads normed = normed_over_ranks(
        {qkv_TE.narrow(1, 0, q), qkv_TE.narrow(1, q, kv)},
        {norm_weight(own_q_norm_, norms_add_one_), norm_weight(own_k_norm_, norms_add_one_)},
        layer_.norm_eps, tp_);
    return at::cat({normed.query_TC, normed.key_TC, value_TC}, 1);
  }
  const bool is_exact = kernels::kernels_for(qkv_TE).arithmetic() == kernels::Arithmetic::kTraining;
  // Rows as long as the weight: all heads of a token, or one of them.
  const auto normed = [&](int64_t begin, int64_t size, const kernels::Param& weight) {
    Tensor rows = qkv_TE.narrow(1, begin, size).reshape({-1, weight.value.size(0)});
    // Those of all heads lie apart but for a row alone, and would choose another kernel by that.
    if (is_exact) rows = rows.contiguous();
    return kernels::rms_norm(rows, norm_weight(weight, norms_add_one_), layer_.norm_eps)
        .view({tokens, size});
  };
  return at::cat({normed(0, q, own_q_norm_), normed(q, kv, own_k_norm_), value_TC}, 1);
}

std::unique_ptr<Mixer> make_grouped_query_attention(const LayerSite& site) {
  return std::make_unique<GroupedQueryAttention>(site);
}

}  // namespace slime::model
