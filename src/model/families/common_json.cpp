/// What most families write alike; common_fields.cpp reads it.

#include <algorithm>
#include <cmath>

#include "model/config_words.h"
#include "model/families/family.h"

namespace slime::model {
namespace {

json::object rope_json(const Rope& rope) {
  json::object object{{"rope_theta", rope.theta}, {"rope_type", word_of(rope.kind)}};
  if (rope.kind == Rope::Kind::kDefault) return object;
  object["factor"] = rope.factor;
  if (rope.attention_factor > 0) object["attention_factor"] = rope.attention_factor;
  if (rope.kind == Rope::Kind::kLongrope) {
    object["original_max_position_embeddings"] = rope.original_max_positions;
    object["short_factor"] = json::value_from(rope.short_factors);
    object["long_factor"] = json::value_from(rope.long_factors);
  }
  if (rope.kind == Rope::Kind::kLlama3) {
    object["low_freq_factor"] = rope.low_freq_factor;
    object["high_freq_factor"] = rope.high_freq_factor;
    object["original_max_position_embeddings"] = rope.original_max_positions;
  }
  if (rope.kind == Rope::Kind::kYarn) {
    object["original_max_position_embeddings"] = rope.original_max_positions;
    object["beta_fast"] = rope.beta_fast;
    object["beta_slow"] = rope.beta_slow;
    object["truncate"] = rope.truncates;
    if (rope.mscale > 0) object["mscale"] = rope.mscale;
    if (rope.mscale_all_dim > 0) object["mscale_all_dim"] = rope.mscale_all_dim;
  }
  return object;
}

/// Readers truncate head_dim times this.
double rotary_factor(const ModelConfig& config) {
  const auto head = static_cast<double>(config.head_dim);
  double factor = static_cast<double>(config.rotary_dim) / head;
  while (static_cast<int64_t>(head * factor) < config.rotary_dim)
    factor = std::nextafter(factor, 1.0);
  return factor;
}

int64_t widest_window(const ModelConfig& config) {
  return config.window.empty() ? 0 : std::ranges::max(config.window);
}

}  // namespace

void write_common(const ModelConfig& config, json::object& out) {
  out["vocab_size"] = config.vocab_size;
  out["hidden_size"] = config.hidden_size;
  out["intermediate_size"] = config.intermediate_size;
  out["num_hidden_layers"] = config.num_layers;
  out["num_attention_heads"] = config.num_heads;
  out["num_key_value_heads"] = config.num_kv_heads;
  out["head_dim"] = config.head_dim;
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = config.norm_eps;
  out["max_position_embeddings"] = config.max_positions;
  out["rope_theta"] = config.rope.theta;
  json::object rope = rope_json(config.rope);
  json::object scaling = rope;
  scaling.erase("rope_theta");
  out["rope_scaling"] = config.rope.kind == Rope::Kind::kDefault ? json::value() : scaling;
  if (config.rotary_dim != config.head_dim) {
    out["partial_rotary_factor"] = rotary_factor(config);
    rope["partial_rotary_factor"] = rotary_factor(config);
  }
  out["rope_parameters"] = std::move(rope);
  out["tie_word_embeddings"] = config.ties_embeddings;
  out["initializer_range"] = config.initializer_range;
  if (!config.dtype.empty()) out["torch_dtype"] = config.dtype;
  if (!config.eos_token_ids.empty()) out["eos_token_id"] = json::value_from(config.eos_token_ids);
}

void write_window(const ModelConfig& config, json::object& out) {
  const int64_t window = widest_window(config);
  out["sliding_window"] = window > 0 ? json::value(window) : json::value();
}

void write_layer_types(const ModelConfig& config, json::object& out) {
  json::array types;
  for (const int64_t window : config.window)
    types.emplace_back(window > 0 ? "sliding_attention" : "full_attention");
  out["layer_types"] = std::move(types);
}

void write_windows_by_layer(const ModelConfig& config, json::object& out) {
  write_window(config, out);
  write_layer_types(config, out);
  out["use_sliding_window"] = widest_window(config) > 0;
  const auto first = std::ranges::find_if(config.window, [](int64_t window) { return window > 0; });
  out["max_window_layers"] = first - config.window.begin();
}

}  // namespace slime::model
