/// DeepSeek-V3.2: DeepSeek-V3 whose attention looks at the tokens that an indexer chose. The
/// indexer rotates halves with each other, attention neighbours.

#include "model/families/family.h"

namespace slime::model {

void read_deepseek_v32(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, latent_defaults(fields));
  read_indexer(fields, config);
  read_latent_attention(fields, config);
  check_indexer(fields, config);
  read_shared_experts(fields, config);
  read_sigmoid_routing(fields, config);
  read_draft_layers(fields, config);
  read_mlp_layer_types(fields, config);
}

void write_deepseek_v32(const ModelConfig& config, json::object& out) {
  write_glm4_moe_lite(config, out);
  write_indexer(config, out);
}

}  // namespace slime::model
