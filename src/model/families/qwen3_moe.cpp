/// Qwen3-30B-A3B and 235B-A22B: Qwen3's attention, softmax routing, no shared expert. A window is
/// not read: no published model has one.

#include "model/families/family.h"

namespace slime::model {

void read_qwen3_moe(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 4, .head_dim = {}});
  const bool attention_bias = fields.boolean("attention_bias").value_or(false);
  config.has_qkv_bias = attention_bias;
  config.has_output_bias = attention_bias;
  config.qk_norm = QkNorm::kPerHead;
  fields.refuse("use_sliding_window", "is not supported for this model type");
  read_windows(fields, config, 0, 0);
  // Recent libraries write it under another name.
  const bool is_newer = fields.has("num_local_experts") && !fields.has("num_experts");
  read_expert_sizes(fields, config, is_newer ? "num_local_experts" : "num_experts",
                    "moe_intermediate_size");
  read_sparse_layers(fields, config);
  config.experts.normalizes = fields.boolean("norm_topk_prob").value_or(false);
}

void write_qwen3_moe(const ModelConfig& config, json::object& out) {
  const ExpertsConfig& experts = config.experts;
  out["attention_bias"] = config.has_qkv_bias;
  out["use_sliding_window"] = false;
  out["num_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["moe_intermediate_size"] = experts.width;
  out["norm_topk_prob"] = experts.normalizes;
  write_sparse_layers(config, out);
}

}  // namespace slime::model
