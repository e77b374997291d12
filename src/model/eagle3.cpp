#include "model/eagle3.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/layers/layer_site.h"
#include "model/layers/media_rows.h"
#include "model/layers/rotary_table.h"
#include "model/layers/tensor_parallel.h"
#include "model/layers/vocabulary_parallel.h"
#include "model/weights_builder.h"

namespace slime::model {
namespace {

/// Rows of the target's tables: sequences beyond its switch rotate by the second half, of the same positions.
RotaryTable rotary_of(const Eagle3Form& form, const ModelConfig& target, at::Device device) {
  const ModelConfig& layer = form.layer;
  RotaryTable table =
      make_rotary_table(layer.rope, {layer.rotary_dim, layer.head_dim, false}, layer.max_positions,
                        /*has_switch=*/false, device);
  if (target.rotary_switch() == 0) return table;
  table.cos_PR = at::cat({table.cos_PR, table.cos_PR});
  table.sin_PR = at::cat({table.sin_PR, table.sin_PR});
  return table;
}

}  // namespace

Eagle3::Eagle3(Eagle3Form form, const ModelConfig& target, const Precision& precision)
    : form_(std::move(form)), activations_(precision.activations) {
  const ModelConfig& layer = form_.layer;
  const int64_t hidden = layer.hidden_size, q = layer.num_heads * layer.head_dim,
                kv = layer.num_kv_heads * layer.head_dim;
  const RotaryTable rotary = rotary_of(form_, target, precision.device);
  Weights::Builder builder(weights_);
  const auto in_layer = [&](const char* name) { return form_.layer_prefix + name + ".weight"; };
  const auto around = [&](const char* name) { return form_.around_prefix + name + ".weight"; };
  builder.add_plain(fuse_, {{around("fc"), {hidden, 3 * form_.target_hidden}, {}}});
  builder.add(embedding_norm_, {{in_layer("input_layernorm"), {hidden}, {}}});
  builder.add(hidden_norm_, {{in_layer("hidden_norm"), {hidden}, {}}});
  builder.add_plain(projection_, {{in_layer("self_attn.q_proj"), {q, 2 * hidden}, {}},
                                  {in_layer("self_attn.k_proj"), {kv, 2 * hidden}, {}},
                                  {in_layer("self_attn.v_proj"), {kv, 2 * hidden}, {}}});
  builder.add_plain(output_, {{in_layer("self_attn.o_proj"), {hidden, q}, {}}});
  builder.add(mlp_norm_, {{in_layer("post_attention_layernorm"), {hidden}, {}}});
  const GatedMlpShape mlp{hidden, layer.intermediate_size, layer.has_mlp_bias, layer.activation};
  mlp_ = std::make_unique<GatedMlp>(
      LayerSite{layer, 0, comm::Mesh::single(), rotary, builder, form_.layer_prefix}, "mlp", mlp);
  builder.add(last_norm_, {{around("norm"), {hidden}, {}}});
  if (form_.has_head)
    builder.add_plain(head_, {{"lm_head.weight", {form_.draft_vocab, hidden}, {}}});
  if (!form_.embedding.empty())
    builder.add(embedding_, {{form_.embedding, {layer.vocab_size, hidden}, {}}});
  builder.allocate(precision);

  attention_.num_heads = layer.num_heads;
  attention_.num_kv_heads = layer.num_kv_heads;
  attention_.head_dim = layer.head_dim;
  attention_.scale = 1 / std::sqrt(static_cast<double>(layer.head_dim));
  attention_.norm_eps = layer.norm_eps;
  attention_.cos_PR = rotary.cos_PR;
  attention_.sin_PR = rotary.sin_PR;
  needs_.mixer = "EAGLE-3 draft model";
  needs_.feed_forward = mlp_->describe();
  needs_.costs = mlp_->costs();
  needs_.costs.parameters = weights_.num_parameters();
  needs_.costs.passing += 3 * form_.target_hidden + 8 * hidden + 2 * q + 2 * kv;
  needs_.cache = {.heads = layer.num_kv_heads,
                  .queries_per_head = layer.num_heads / layer.num_kv_heads,
                  .key_size = layer.head_dim,
                  .value_size = layer.head_dim};
}

Tensor Eagle3::fused(const Tensor& hidden_TC) const { return kernels::linear(hidden_TC, fuse_); }

Tensor Eagle3::embeddings(const TokenBatch& batch, const Network& target) const {
  if (!embedding_.defined()) return target.embedded(batch);
  const TensorParallel alone(comm::Mesh::single());
  const Tensor own_TH = model::embedded(batch.ids_T, embedding_, {}, activations_, alone);
  // Rows of images are as wide as the target's; without them guesses are worse, and no more than that.
  return form_.layer.hidden_size == form_.target_hidden ? with_media(own_TH, batch, alone) : own_TH;
}

Tensor Eagle3::forward(const Tensor& hidden_TH, const TokenBatch& batch, const Network& target,
                       Attention& attention) const {
  check(!at::GradMode::is_enabled(), "a draft model computes without gradients");
  check(hidden_TH.size(0) == batch.num_tokens(), "each hidden state has a token behind it");
  const double eps = form_.layer.norm_eps;
  const Tensor normed_TH = kernels::rms_norm(hidden_TH, hidden_norm_, eps);
  const Tensor embedding_TH = kernels::rms_norm(embeddings(batch, target), embedding_norm_, eps);
  const Tensor qkv_TE = kernels::linear(at::cat({embedding_TH, normed_TH}, 1), projection_);
  Tensor attended_TC = attention.attend(attention_, qkv_TE, batch.rotary_row_T);
  Tensor residual_TH = form_.norms_residual ? normed_TH : hidden_TH;
  if (batch.wanted_R.defined()) {
    attended_TC = attended_TC.index_select(0, batch.wanted_R);
    residual_TH = residual_TH.index_select(0, batch.wanted_R);
    if (residual_TH.size(0) == 0) return residual_TH;
  } else {
    residual_TH =
        residual_TH.clone();  // the sum is written into it, and hidden states are the caller's
  }
  const auto [sum_RH, mlp_input_RH] =
      kernels::add_rms_norm(residual_TH, kernels::linear(attended_TC, output_), mlp_norm_, eps);
  return sum_RH + mlp_->infer(mlp_input_RH, nullptr);
}

Tensor Eagle3::logits(const Tensor& hidden_RH, const Network& target) const {
  const Tensor normed_RH = kernels::rms_norm(hidden_RH, last_norm_, form_.layer.norm_eps);
  return head_.defined() ? kernels::logits(normed_RH, head_) : target.logits(normed_RH);
}

}  // namespace slime::model
