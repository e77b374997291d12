/// GLM-4.5, 4.6 and 4.7: half of each head rotates, norms of q and k by a switch, dense first layers,
/// sigmoid routing with a selection bias and groups, one shared expert.

#include "model/families/family.h"

namespace slime::model {

void read_glm4_moe(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config,
              {.kv_heads = 8,
               .head_dim = {},
               .norm_eps = 1e-5,
               .has_partial_rotary = true,
               .rotary_factor = 0.5});
  config.has_qkv_bias = fields.boolean("attention_bias").value_or(false);
  if (fields.boolean("use_qk_norm").value_or(false)) config.qk_norm = QkNorm::kPerHead;
  read_windows(fields, config, 0, 0);
  read_shared_experts(fields, config);
  read_sigmoid_routing(fields, config);
  read_draft_layers(fields, config);
}

void write_glm4_moe(const ModelConfig& config, json::object& out) {
  out["attention_bias"] = config.has_qkv_bias;
  out["use_qk_norm"] = config.qk_norm == QkNorm::kPerHead;
  write_shared_experts(config, out);
  write_sigmoid_routing(config, out);
  write_draft_layers(config, out);
}

}  // namespace slime::model
