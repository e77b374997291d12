#include "model/layers/latent_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"

namespace slime::model {
namespace {

/// Of the norms of both latents, whatever rms_norm_eps says: so are the published models.
constexpr double kLatentEps = 1e-6;

/// YaRN widens the scores of a longer context too.
double scale_of(const ModelConfig& config) {
  const double scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  const Rope& rope = config.rope;
  if (rope.kind != Rope::Kind::kYarn || rope.mscale_all_dim == 0) return scale;
  const double wider = yarn_mscale(rope.factor, rope.mscale_all_dim);
  return scale * wider * wider;
}

}  // namespace

Costs latent_costs(const LatentShape& shape) {
  const int64_t h = shape.hidden, n = shape.num_heads, rotary = shape.rotary_dim,
                rank = shape.latent.kv_rank, q_rank = shape.latent.q_rank,
                plain = shape.latent.plain_dim, value = shape.latent.value_dim,
                size = plain + rotary, expanded = n * (plain + value);
  const int64_t queries = q_rank > 0 ? q_rank * (h + n * size) : h * n * size,
                keys_values = rank * h + h * rotary + rank * expanded;
  Costs costs;
  costs.parameters = queries + q_rank + keys_values + rank + n * value * h;
  costs.flops_per_token = 2 * (queries + keys_values) + 2 * h * h;
  costs.flops_per_pair = 2 * n * (size + value);
  // Both latents with their norms, the heads as attention gets them, what it returns.
  costs.saved = costs.saved_selective =
      2 * (q_rank + rank) + 4 * n * size + n * value + (n + 2) * rotary;
  costs.saved_float32 = n;
  costs.gradients = 4 * n * size + expanded;
  costs.passing = 5 * n * size + expanded + 2 * (q_rank + rank);
  return costs;
}

LatentAttention::LatentAttention(const LayerSite& site)
    : tp_(site.mesh),
      shape_{site.config.hidden_size, site.config.num_heads, site.config.rotary_dim,
             site.config.latent} {
  const LatentConfig& latent = shape_.latent;
  const int64_t hidden = shape_.hidden, heads = shape_.num_heads,
                size = latent.plain_dim + shape_.rotary_dim;
  Weights::Builder& builder = site.builder;
  const auto component = [&](const char* name, std::vector<int64_t> shape, const Slice& slice,
                             bool has_partial_grad) {
    return Weights::Builder::Component{
        .name = site.name(std::string("self_attn.") + name + ".weight"),
        .full_shape = std::move(shape),
        .slices = slice,
        .has_partial_grad = has_partial_grad};
  };
  const auto add = [&](auto& param, const char* name, std::vector<int64_t> shape,
                       const Slice& slice, bool has_partial_grad) {
    builder.add(param, {component(name, std::move(shape), slice, has_partial_grad)});
  };
  // Whole on every rank. What a rank has of their gradient are its rows of the stream.
  const auto add_whole = [&](kernels::Param& param, const char* name, std::vector<int64_t> shape) {
    add(param, name, std::move(shape), {}, tp_.cuts_rows);
  };
  const auto heads_of_rank = [&](int dim, int64_t numbers) {
    Slice slice = tensor_parallel_slice(site.mesh, dim, heads);
    slice.begin *= numbers;
    slice.end *= numbers;
    return slice;
  };
  const bool has_query_latent = latent.q_rank > 0;
  const auto key_value = component("kv_a_proj_with_mqa",
                                   {latent.kv_rank + shape_.rotary_dim, hidden}, {}, tp_.cuts_rows);
  if (has_query_latent) {
    query_rows_ = latent.q_rank;
    builder.add(products_.first.weight_OI,
                {component("q_a_proj", {latent.q_rank, hidden}, {}, tp_.cuts_rows), key_value});
    add_whole(query_norm_, "q_a_layernorm", {latent.q_rank});
    add(query_, "q_b_proj", {heads * size, latent.q_rank}, heads_of_rank(0, size), false);
  } else {
    query_rows_ = heads / tp_.ranks.size() * size;
    builder.add(
        products_.first.weight_OI,
        {component("q_proj", {heads * size, hidden}, heads_of_rank(0, size), false), key_value});
  }
  add_whole(layer_.latent_norm, "kv_a_layernorm", {latent.kv_rank});
  const int64_t expanded = latent.plain_dim + latent.value_dim;
  // Engines multiply with its two halves apart.
  builder.add_plain(layer_.expand, {component("kv_b_proj", {heads * expanded, latent.kv_rank},
                                              heads_of_rank(0, expanded), false)});
  add(products_.last.weight_OI, "o_proj", {hidden, heads * latent.value_dim},
      heads_of_rank(1, latent.value_dim), false);
  layer_.index = site.index;
  layer_.num_heads = heads / tp_.ranks.size();
  layer_.rank = latent.kv_rank;
  layer_.plain_dim = latent.plain_dim;
  layer_.rotary_dim = shape_.rotary_dim;
  layer_.value_dim = latent.value_dim;
  layer_.scale = scale_of(site.config);
  layer_.norm_eps = kLatentEps;
  layer_.cos_PR = site.rotary.cos_PR;
  layer_.sin_PR = site.rotary.sin_PR;
  layer_.rotary_order_R = site.rotary.head_order_D;
  if (!site.config.indexer.in_layer.empty()) add_indexer(site);
}

void LatentAttention::add_indexer(const LayerSite& site) {
  const IndexerConfig& config = site.config.indexer;
  const auto has_one = [&](int layer) { return config.in_layer[static_cast<std::size_t>(layer)]; };
  layer_.index_count = config.count;
  for (layer_.index_source = site.index; !has_one(layer_.index_source);) --layer_.index_source;
  const auto layers = static_cast<int>(site.config.num_layers);
  layer_.lends_choice = site.index + 1 < layers && !has_one(site.index + 1);
  if (!has_one(site.index)) return;
  indexer_ = std::make_unique<Indexer>(site);
  indexer_costs_ = Indexer::costs(site.config);
}

Costs LatentAttention::costs() const { return latent_costs(shape_) + indexer_costs_; }

CacheSpec LatentAttention::cache() const {
  return {.heads = 1,
          .queries_per_head = layer_.num_heads,
          .key_size = layer_.rotary_dim + layer_.rank,
          .value_size = 0,
          .index_size = indexer_ ? indexer_->size() : 0};
}

std::string LatentAttention::describe() const {
  std::string text = fmt::format("{} heads of {} + {}, latent {}", shape_.num_heads,
                                 layer_.plain_dim, layer_.rotary_dim, layer_.rank);
  if (layer_.index_count > 0) text += fmt::format(", {} tokens of an indexer", layer_.index_count);
  return text;
}

LatentAttention::Latents LatentAttention::latents(const Tensor& input_SH) const {
  const kernels::MatrixParam& first = products_.first.weight_OI;
  Latents of_rows;
  of_rows.query_TQ = query_norm_.defined()
                         ? kernels::rms_norm(kernels::linear(input_SH, first.rows(0, query_rows_)),
                                             query_norm_, kLatentEps)
                         : input_SH;
  const Tensor down_SE =
      kernels::linear(input_SH, first.rows(query_rows_, layer_.rank + layer_.rotary_dim));
  of_rows.latent_TL = kernels::rms_norm(down_SE.narrow(1, 0, layer_.rank).contiguous(),
                                        layer_.latent_norm, kLatentEps);
  of_rows.rotary_key_TR = down_SE.narrow(1, layer_.rank, layer_.rotary_dim);
  return of_rows;
}

LatentAttention::Latents LatentAttention::of_all_rows(const Latents& own, int64_t tokens) const {
  if (tp_.is_alone()) return own;
  // In one exchange: the numbers of a row side by side.
  const Tensor all_TE = first_rows(
      layer_input(at::cat({own.query_TQ, own.latent_TL, own.rotary_key_TR}, 1), tp_), tokens);
  const int64_t queries = own.query_TQ.size(1);
  return {all_TE.narrow(1, 0, queries).contiguous(),
          all_TE.narrow(1, queries, layer_.rank).contiguous(),
          all_TE.narrow(1, queries + layer_.rank, layer_.rotary_dim)};
}

const Products* LatentAttention::products() const {
  return tp_.cuts_rows || layer_.index_count > 0 ? nullptr : &products_;
}

Tensor LatentAttention::mix(const Tensor& projected_TE, const Tensor& positions_T,
                            Attention& attention) const {
  return attended(projected_TE, {}, positions_T, attention);
}

Tensor LatentAttention::attended(const Tensor& projected_TE, const Tensor& input_TH,
                                 const Tensor& positions_T, Attention& attention) const {
  LatentProjection in;
  in.query_TE = projected_TE.narrow(1, 0, query_rows_);
  if (query_norm_.defined()) {
    const Tensor latent_TQ = kernels::rms_norm(in.query_TE.contiguous(), query_norm_, kLatentEps);
    if (indexer_) in.index = indexer_->project(input_TH, latent_TQ);
    in.query_TE = kernels::linear(latent_TQ, query_);
  }
  in.latent_TL = projected_TE.narrow(1, query_rows_, layer_.rank);
  in.rotary_key_TR = projected_TE.narrow(1, query_rows_ + layer_.rank, layer_.rotary_dim);
  return attention.attend_projected_latent(layer_, in, positions_T);
}

/// One product where that is cheaper: its gradient would be put together from those of its columns.
Tensor LatentAttention::forward(const Tensor& input_SH, const Tensor& positions_T,
                                Attention& attention) const {
  const bool has_projections = layer_.index_count > 0
                                   ? !tp_.cuts_rows && attention.wants_sparse_projections()
                                   : products() != nullptr;
  if (has_projections && !at::GradMode::is_enabled()) {
    return summed_linear(attended(kernels::linear(input_SH, products_.first.weight_OI), input_SH,
                                  positions_T, attention),
                         products_.last, tp_);
  }
  const int64_t rotary = layer_.rotary_dim, tokens = positions_T.size(0);
  const auto ordered = [&](const Tensor& x) {
    return layer_.rotary_order_R.defined() ? x.index_select(x.dim() - 1, layer_.rotary_order_R) : x;
  };
  const Latents all = of_all_rows(latents(input_SH), tokens);
  const kernels::MatrixParam query =
      query_.defined() ? query_ : products_.first.weight_OI.rows(0, query_rows_);
  const Tensor query_TND = kernels::linear(all.query_TQ, query)
                               .view({tokens, layer_.num_heads, layer_.plain_dim + rotary});
  LatentInput in;
  if (indexer_)
    in.index =
        indexer_->forward(all_rows(input_SH.detach(), tokens, tp_), all.query_TQ, positions_T);
  in.plain_query_TNP = query_TND.narrow(2, 0, layer_.plain_dim);
  in.rotary_query_TNR = ordered(query_TND.narrow(2, layer_.plain_dim, rotary));
  in.latent_TL = all.latent_TL;
  in.rotary_key_TR = ordered(all.rotary_key_TR);
  return summed_linear(attention.attend_latent(layer_, in, positions_T), products_.last, tp_);
}

std::unique_ptr<Mixer> make_latent_attention(const LayerSite& site) {
  return std::make_unique<LatentAttention>(site);
}

}  // namespace slime::model
