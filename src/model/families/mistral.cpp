/// Mistral: llama without biases, and one sliding window for all layers unless sliding_window is
/// null.

#include "model/families/family.h"

namespace slime::model {

void read_mistral(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 8, .head_dim = {}});
  // transformers' MistralConfig has a window of 4096 when the field is absent; null switches it
  // off.
  const bool absent = !fields.raw().contains("sliding_window");
  const int64_t window =
      absent ? 4096 : fields.integer("sliding_window", 1, int64_t{1} << 32).value_or(0);
  read_windows(fields, config, window, 0);
}

void write_mistral(const ModelConfig& config, json::object& out) { write_window(config, out); }

}  // namespace slime::model
