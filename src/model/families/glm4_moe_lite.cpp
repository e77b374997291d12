/// GLM-4.7-Flash: latent attention and the routing of GLM-4.5. Which layers are dense is told by a
/// number or layer by layer.

#include "model/families/family.h"

namespace slime::model {

void read_glm4_moe_lite(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, latent_defaults(fields, 1e-5));
  read_latent_attention(fields, config);
  read_shared_experts(fields, config);
  read_sigmoid_routing(fields, config);
  read_draft_layers(fields, config);
  read_mlp_layer_types(fields, config);
}

void write_glm4_moe_lite(const ModelConfig& config, json::object& out) {
  write_deepseek_v3(config, out);
  json::array types;
  for (int64_t i = 0; i < config.num_layers; ++i)
    types.emplace_back(config.experts.are_in(i) ? "sparse" : "dense");
  out["mlp_layer_types"] = std::move(types);
}

}  // namespace slime::model
