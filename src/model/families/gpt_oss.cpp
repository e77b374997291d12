/// gpt-oss: attention sinks, a window in every other layer, YaRN without rounding, biases everywhere,
/// experts in all layers whose weights are one tensor each.

#include "model/families/family.h"

namespace slime::model {

void read_gpt_oss(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 8, .head_dim = 64, .norm_eps = 1e-5});
  if (!fields.has("rope_scaling") && !fields.has("rope_parameters")) {
    config.rope = {.kind = Rope::Kind::kYarn,
                   .theta = fields.number("rope_theta", 1e-6, 1e30).value_or(150000),
                   .factor = 32,
                   .original_max_positions = 4096,
                   .truncates = false};
  }
  config.has_qkv_bias = config.has_output_bias = fields.boolean("attention_bias").value_or(true);
  config.has_sinks = true;
  const int64_t window =
      fields.required().integer("sliding_window", 1, int64_t{1} << 32).value_or(1);
  read_windows(fields, config, window, 0);
  if (!fields.has("layer_types")) {
    for (size_t i = 1; i < config.window.size(); i += 2) config.window[i] = 0;
  }
  read_expert_sizes(fields, config, "num_local_experts", "intermediate_size");
  ExpertsConfig& experts = config.experts;
  experts.in_layer.assign(static_cast<size_t>(config.num_layers), true);
  experts.normalizes = true;  // the softmax of the chosen logits
  experts.has_router_bias = true;
  experts.are_in_turns = true;
  experts.swiglu_limit = fields.number("swiglu_limit", 1e-6, 1e6).value_or(7);
  fields.number("swiglu_alpha", 1.702, 1.702);
  experts.names.router = "router";
}

void write_gpt_oss(const ModelConfig& config, json::object& out) {
  const ExpertsConfig& experts = config.experts;
  out["attention_bias"] = config.has_qkv_bias;
  write_window(config, out);
  write_layer_types(config, out);
  out["num_local_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["experts_per_token"] = experts.per_token;
  out["swiglu_limit"] = experts.swiglu_limit;
}

}  // namespace slime::model
