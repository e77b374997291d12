/// OLMo 2: norms after each layer instead of before it, q/k norm over all heads at once, biases on
/// all four projections of the attention by one switch, no window.

#include "model/families/family.h"

namespace slime::model {

void read_olmo2(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.norm_eps = 1e-5});
  const bool attention_bias = fields.boolean("attention_bias").value_or(false);
  config.has_qkv_bias = attention_bias;
  config.has_output_bias = attention_bias;
  config.qk_norm = QkNorm::kAllHeads;
  config.norms = {.before_mixer = "",
                  .after_mixer = "post_attention_layernorm",
                  .before_feed_forward = "",
                  .after_feed_forward = "post_feedforward_layernorm"};
  read_windows(fields, config, 0, 0);
}

void write_olmo2(const ModelConfig& config, json::object& out) {
  out["attention_bias"] = config.has_qkv_bias;
}

}  // namespace slime::model
