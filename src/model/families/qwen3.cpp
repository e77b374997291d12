/// Qwen3 (dense): q/k norm per head, head_dim of its own, no biases unless attention_bias; windows
/// as in Qwen2.

#include "model/families/family.h"

namespace slime::model {

void read_qwen3(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 32, .head_dim = 128});
  const bool attention_bias = fields.boolean("attention_bias").value_or(false);
  config.has_qkv_bias = attention_bias;
  config.has_output_bias = attention_bias;
  config.qk_norm = QkNorm::kPerHead;
  const bool windowed = fields.boolean("use_sliding_window").value_or(false);
  const int64_t window =
      fields.integer("sliding_window", 1, int64_t{1} << 32).value_or(windowed ? 4096 : 0);
  const int64_t first = fields.integer("max_window_layers", 0, 4096).value_or(28);
  read_windows(fields, config, windowed ? window : 0, first);
}

void write_qwen3(const ModelConfig& config, json::object& out) {
  out["attention_bias"] = config.has_qkv_bias;
  write_windows_by_layer(config, out);
}

}  // namespace slime::model
