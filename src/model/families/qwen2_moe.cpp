/// Qwen1.5-MoE and Qwen2-57B-A14B: Qwen2's attention, softmax routing whose weights are not
/// normalised by default, and a shared expert behind a gate of its own. A window is not read: no
/// published model has one.

#include "model/families/family.h"

namespace slime::model {

void read_qwen2_moe(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 16, .head_dim = {}});
  config.has_qkv_bias = fields.boolean("qkv_bias").value_or(true);
  fields.refuse("use_sliding_window", "is not supported for this model type");
  read_windows(fields, config, 0, 0);
  read_expert_sizes(fields, config, "num_experts", "moe_intermediate_size");
  read_sparse_layers(fields, config);
  config.experts.normalizes = fields.boolean("norm_topk_prob").value_or(false);
  config.experts.shared_width =
      fields.required().integer("shared_expert_intermediate_size", 1, int64_t{1} << 24).value_or(1);
  config.experts.has_shared_gate = true;
}

void write_qwen2_moe(const ModelConfig& config, json::object& out) {
  const ExpertsConfig& experts = config.experts;
  out["qkv_bias"] = config.has_qkv_bias;
  out["use_sliding_window"] = false;
  out["num_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["moe_intermediate_size"] = experts.width;
  out["shared_expert_intermediate_size"] = experts.shared_width;
  out["norm_topk_prob"] = experts.normalizes;
  write_sparse_layers(config, out);
}

}  // namespace slime::model
