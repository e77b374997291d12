/// GLM-4-9B, GLM-4-32B and GLM-Z1: norms before and after each layer, the first half of each head
/// rotates with neighbours as pairs, gate and up as one tensor, biases on q, k, v by a switch.

#include "model/families/family.h"

namespace slime::model {

void read_glm4(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config,
              {.kv_heads = 2,
               .head_dim = 128,
               .norm_eps = 1.5625e-7,
               .has_partial_rotary = true,
               .rotary_factor = 0.5});
  config.rotates_pairs = true;
  config.has_qkv_bias = fields.boolean("attention_bias").value_or(false);
  config.has_fused_gate_up = true;
  config.norms = {.before_mixer = "input_layernorm",
                  .after_mixer = "post_self_attn_layernorm",
                  .before_feed_forward = "post_attention_layernorm",
                  .after_feed_forward = "post_mlp_layernorm"};
  read_windows(fields, config, 0, 0);
}

void write_glm4(const ModelConfig& config, json::object& out) {
  out["attention_bias"] = config.has_qkv_bias;
}

}  // namespace slime::model
