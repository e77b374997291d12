/// Llama 2 and 3, SmolLM2 and everything else that calls itself "llama": biases by two switches, no
/// q/k norm, no window.

#include "model/families/family.h"

namespace slime::model {

void read_llama(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {});
  const bool attention_bias = fields.boolean("attention_bias").value_or(false);
  config.has_qkv_bias = attention_bias;
  config.has_output_bias = attention_bias;
  config.has_mlp_bias = fields.boolean("mlp_bias").value_or(false);
  read_windows(fields, config, 0, 0);
}

void write_llama(const ModelConfig& config, json::object& out) {
  out["attention_bias"] = config.has_qkv_bias;
  out["mlp_bias"] = config.has_mlp_bias;
}

}  // namespace slime::model
