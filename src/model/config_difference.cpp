#include "model/config_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "model/config_words.h"

namespace slime::model {
namespace {

/// "[0 2 3]".
std::string text_of_layers(const std::vector<bool>& in_layer) {
  std::vector<size_t> layers;
  for (size_t i = 0; i < in_layer.size(); ++i) {
    if (in_layer[i]) layers.push_back(i);
  }
  return fmt::format("[{}]", fmt::join(layers, " "));
}

/// "4 of 16 x 16, 2 of keys": heads of a gated delta net.
std::string text_of_delta(const DeltaConfig& delta) {
  return fmt::format("{} of {} x {}, {} of keys, convolution of {}", delta.shape.value_heads,
                     delta.shape.key_dim, delta.shape.value_dim, delta.shape.key_heads, delta.taps);
}

/// "[4096 - 4096]": layer by layer, - where attention is full.
std::string text_of_windows(const std::vector<int64_t>& window) {
  std::vector<std::string> texts;
  for (const int64_t size : window) texts.push_back(size == 0 ? "-" : fmt::format("{}", size));
  return fmt::format("[{}]", fmt::join(texts, " "));
}

}  // namespace

std::vector<std::string> differing_fields(const ModelConfig& running, const ModelConfig& fresh) {
  std::vector<std::string> fields;
  const auto compare = [&fields](std::string_view name, const auto& here, const auto& there) {
    if (here != there) fields.push_back(fmt::format("{} {} (here {})", name, there, here));
  };
  compare("vocab_size", running.vocab_size, fresh.vocab_size);
  compare("hidden_size", running.hidden_size, fresh.hidden_size);
  compare("intermediate_size", running.intermediate_size, fresh.intermediate_size);
  compare("num_hidden_layers", running.num_layers, fresh.num_layers);
  compare("num_attention_heads", running.num_heads, fresh.num_heads);
  compare("num_key_value_heads", running.num_kv_heads, fresh.num_kv_heads);
  compare("head_dim", running.head_dim, fresh.head_dim);
  compare("rotary dimensions", running.rotary_dim, fresh.rotary_dim);
  compare("rms_norm_eps", running.norm_eps, fresh.norm_eps);
  compare("rope_theta", running.rope.theta, fresh.rope.theta);
  compare("rope_type", word_of(running.rope.kind), word_of(fresh.rope.kind));
  compare("rope factor", running.rope.factor, fresh.rope.factor);
  compare("rope low_freq_factor", running.rope.low_freq_factor, fresh.rope.low_freq_factor);
  compare("rope high_freq_factor", running.rope.high_freq_factor, fresh.rope.high_freq_factor);
  compare("rope original_max_position_embeddings", running.rope.original_max_positions,
          fresh.rope.original_max_positions);
  compare("rope attention_factor", running.rope.attention_factor, fresh.rope.attention_factor);
  compare("rope short_factor", fmt::format("{}", fmt::join(running.rope.short_factors, ", ")),
          fmt::format("{}", fmt::join(fresh.rope.short_factors, ", ")));
  compare("rope long_factor", fmt::format("{}", fmt::join(running.rope.long_factors, ", ")),
          fmt::format("{}", fmt::join(fresh.rope.long_factors, ", ")));
  compare("rope beta_fast", running.rope.beta_fast, fresh.rope.beta_fast);
  compare("rope beta_slow", running.rope.beta_slow, fresh.rope.beta_slow);
  compare("rope truncate", running.rope.truncates, fresh.rope.truncates);
  compare("rope mscale", running.rope.mscale, fresh.rope.mscale);
  compare("rope mscale_all_dim", running.rope.mscale_all_dim, fresh.rope.mscale_all_dim);
  compare("rotation of neighbours", running.rotates_pairs, fresh.rotates_pairs);
  compare("sliding_window by layer", text_of_windows(running.window),
          text_of_windows(fresh.window));
  compare("tie_word_embeddings", running.ties_embeddings, fresh.ties_embeddings);
  compare("bias of q, k, v", running.has_qkv_bias, fresh.has_qkv_bias);
  compare("bias of the attention's output", running.has_output_bias, fresh.has_output_bias);
  compare("mlp_bias", running.has_mlp_bias, fresh.has_mlp_bias);
  compare("norm of q and k", word_of(running.qk_norm), word_of(fresh.qk_norm));
  compare("query_pre_attn_scalar", running.query_scalar, fresh.query_scalar);
  compare("attn_logit_softcapping", running.score_cap, fresh.score_cap);
  compare("final_logit_softcapping", running.logit_cap, fresh.logit_cap);
  compare("norms of 1 + weight", running.norms_add_one, fresh.norms_add_one);
  compare("attention sinks", running.has_sinks, fresh.has_sinks);
  compare("scaled embeddings", running.scales_embedding, fresh.scales_embedding);
  compare("GELU", running.activation == Activation::kGelu, fresh.activation == Activation::kGelu);
  const auto local_theta = [](const ModelConfig& config) {
    return config.local_rope ? config.local_rope->theta : config.rope.theta;
  };
  compare("rope_local_base_freq", local_theta(running), local_theta(fresh));
  const BlockNorms &here = running.norms, &there = fresh.norms;
  compare("norm before attention", here.before_mixer, there.before_mixer);
  compare("norm after attention", here.after_mixer, there.after_mixer);
  compare("norm before the MLP", here.before_feed_forward, there.before_feed_forward);
  compare("norm after the MLP", here.after_feed_forward, there.after_feed_forward);
  compare("kv_lora_rank", running.latent.kv_rank, fresh.latent.kv_rank);
  compare("q_lora_rank", running.latent.q_rank, fresh.latent.q_rank);
  compare("qk_nope_head_dim", running.latent.plain_dim, fresh.latent.plain_dim);
  compare("v_head_dim", running.latent.value_dim, fresh.latent.value_dim);
  compare("layers with an indexer", text_of_layers(running.indexer.in_layer),
          text_of_layers(fresh.indexer.in_layer));
  compare("index_n_heads", running.indexer.num_heads, fresh.indexer.num_heads);
  compare("index_head_dim", running.indexer.head_dim, fresh.indexer.head_dim);
  compare("index_topk", running.indexer.count, fresh.indexer.count);
  compare("indexer_rope_interleave", running.indexer.rotates_pairs, fresh.indexer.rotates_pairs);
  const ExpertsConfig &has = running.experts, &gets = fresh.experts;
  compare("layers with experts", text_of_layers(has.in_layer), text_of_layers(gets.in_layer));
  compare("layers of gated delta nets", text_of_layers(running.delta.in_layer),
          text_of_layers(fresh.delta.in_layer));
  compare("gated delta nets", text_of_delta(running.delta), text_of_delta(fresh.delta));
  compare("gate of attention", running.has_output_gate, fresh.has_output_gate);
  compare("experts", has.count, gets.count);
  compare("experts per token", has.per_token, gets.per_token);
  compare("width of an expert", has.width, gets.width);
  compare("width of the shared expert", has.shared_width, gets.shared_width);
  compare("gate of the shared expert", has.has_shared_gate, gets.has_shared_gate);
  compare("router score", word_of(has.score), word_of(gets.score));
  compare("selection bias of experts", has.has_selection_bias, gets.has_selection_bias);
  compare("bias of the router", has.has_router_bias, gets.has_router_bias);
  compare("gates and ups of experts in turns", has.are_in_turns, gets.are_in_turns);
  compare("swiglu_limit", has.swiglu_limit, gets.swiglu_limit);
  compare("n_group", has.num_groups, gets.num_groups);
  compare("topk_group", has.groups_per_token, gets.groups_per_token);
  compare("experts that make a group's score", has.best_of_group, gets.best_of_group);
  compare("norm_topk_prob", has.normalizes, gets.normalizes);
  compare("routed_scaling_factor", has.scaling, gets.scaling);
  if (!fields.empty() && running.model_type != fresh.model_type)
    fields.insert(fields.begin(),
                  fmt::format("model_type {} (here {})", fresh.model_type, running.model_type));
  return fields;
}

}  // namespace slime::model
