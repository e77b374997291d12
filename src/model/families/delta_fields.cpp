#include <fmt/format.h>

#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr int64_t kMostHeads = 4096;

void read_delta_layers(const FieldReader& fields, ModelConfig& config) {
  std::vector<bool>& in_layer = config.delta.in_layer;
  in_layer.clear();
  const json::array* types = fields.array("layer_types");
  if (types == nullptr) {
    const int64_t interval = fields.integer("full_attention_interval", 1, 4096).value_or(4);
    for (int64_t i = 0; i < config.num_layers; ++i) in_layer.push_back((i + 1) % interval != 0);
    return;
  }
  if (static_cast<int64_t>(types->size()) != config.num_layers) {
    fields.note("layer_types", fmt::format("must have one entry per layer ({}), not {}",
                                           config.num_layers, types->size()));
  }
  for (const json::value& type : *types) {
    const bool is_linear = type == "linear_attention";
    if (!is_linear && type != "full_attention") {
      fields.note(
          fmt::format("layer_types[{}]", in_layer.size()),
          fmt::format("must be one of full_attention, linear_attention, not {}", shown(type)));
    }
    in_layer.push_back(is_linear);
  }
}

}  // namespace

void read_delta_nets(const FieldReader& fields, ModelConfig& config) {
  const FieldReader needed = fields.required();
  const auto size = [&](std::string_view name) {
    return needed.integer(name, 1, kMostHeads).value_or(1);
  };
  DeltaConfig& delta = config.delta;
  delta.shape = {size("linear_num_key_heads"), size("linear_num_value_heads"),
                 size("linear_key_head_dim"), size("linear_value_head_dim")};
  delta.taps = needed.integer("linear_conv_kernel_dim", 1, 64).value_or(1);
  fields.expect(
      delta.shape.value_heads % delta.shape.key_heads == 0, "linear_num_value_heads",
      fmt::format("must be a multiple of linear_num_key_heads ({})", delta.shape.key_heads));
  fields.expect(delta.shape.value_dim <= 1024, "linear_value_head_dim", "must be at most 1024");
  fields.refuse("attention_bias", "is not supported for this model type");
  read_delta_layers(fields, config);
  config.window.assign(static_cast<size_t>(config.num_layers), 0);
  config.qk_norm = QkNorm::kPerHead;
  config.norms_add_one = true;
  config.has_output_gate = fields.boolean("attn_output_gate").value_or(true);
}

void write_delta_nets(const ModelConfig& config, json::object& out) {
  const DeltaConfig& delta = config.delta;
  out["linear_num_key_heads"] = delta.shape.key_heads;
  out["linear_num_value_heads"] = delta.shape.value_heads;
  out["linear_key_head_dim"] = delta.shape.key_dim;
  out["linear_value_head_dim"] = delta.shape.value_dim;
  out["linear_conv_kernel_dim"] = delta.taps;
  json::array types;
  for (const bool is_linear : delta.in_layer)
    types.emplace_back(is_linear ? "linear_attention" : "full_attention");
  out["layer_types"] = std::move(types);
  out["attn_output_gate"] = config.has_output_gate;
}

void read_gated_shared_experts(const FieldReader& fields, ModelConfig& config) {
  read_expert_sizes(fields, config, "num_experts", "moe_intermediate_size");
  read_sparse_layers(fields, config);
  config.experts.normalizes = true;
  config.experts.shared_width =
      fields.required().integer("shared_expert_intermediate_size", 1, int64_t{1} << 24).value_or(1);
  config.experts.has_shared_gate = true;
}

void write_gated_shared_experts(const ModelConfig& config, json::object& out) {
  const ExpertsConfig& experts = config.experts;
  out["num_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  out["moe_intermediate_size"] = experts.width;
  out["shared_expert_intermediate_size"] = experts.shared_width;
  write_sparse_layers(config, out);
}

}  // namespace slime::model
