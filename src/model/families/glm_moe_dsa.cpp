/// GLM-5: sparse attention as DeepSeek-V3.2 has it, and the routing of GLM-4.5. Layers may take over
/// the choice of an indexer before them.

#include "model/families/family.h"

namespace slime::model {

void read_glm_moe_dsa(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, latent_defaults(fields, 1e-5));
  read_indexer(fields, config);
  read_indexed_layers(fields, config);
  config.indexer.rotates_pairs = fields.boolean("indexer_rope_interleave").value_or(true);
  read_latent_attention(fields, config);
  check_indexer(fields, config);
  read_shared_experts(fields, config);
  read_sigmoid_routing(fields, config);
  read_draft_layers(fields, config);
  read_mlp_layer_types(fields, config);
}

void write_glm_moe_dsa(const ModelConfig& config, json::object& out) {
  write_glm4_moe_lite(config, out);
  write_indexer(config, out);
  out["indexer_rope_interleave"] = config.indexer.rotates_pairs;
  json::array types;
  for (const bool has_one : config.indexer.in_layer)
    types.emplace_back(has_one ? "full" : "shared");
  out["indexer_types"] = std::move(types);
}

}  // namespace slime::model
