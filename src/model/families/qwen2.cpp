/// Qwen2 and Qwen2.5: biases on q, k, v only; a window only with use_sliding_window, from layer
/// max_window_layers on.

#include "model/families/family.h"

namespace slime::model {

void read_qwen2(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 32, .head_dim = {}});
  config.has_qkv_bias = true;
  const bool windowed = fields.boolean("use_sliding_window").value_or(false);
  const int64_t window =
      fields.integer("sliding_window", 1, int64_t{1} << 32).value_or(windowed ? 4096 : 0);
  const int64_t first = fields.integer("max_window_layers", 0, 4096).value_or(28);
  read_windows(fields, config, windowed ? window : 0, first);
}

void write_qwen2(const ModelConfig& config, json::object& out) {
  write_windows_by_layer(config, out);
}

}  // namespace slime::model
