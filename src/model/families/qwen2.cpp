/// Qwen2 and Qwen2.5: biases on q, k, v only; a window only with use_sliding_window, from layer
/// max_window_layers on.

#include "model/families/family.h"

namespace slime::model {

void read_qwen2(FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 32, .head_dim = {}});
  config.has_qkv_bias = true;
  const bool windowed = fields.boolean("use_sliding_window", false);
  const int64_t window = fields.integer("sliding_window", 1, int64_t{1} << 32, windowed ? 4096 : 0);
  const int64_t first = fields.integer("max_window_layers", 0, 4096, 28);
  read_windows(fields, config, windowed ? window : 0, first);
}

}  // namespace slime::model
