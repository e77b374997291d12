/// DeepSeek-V3, V3.1 and R1, Moonlight, and Kimi K2, which is the same under another name: latent
/// attention, sigmoid routing with a selection bias inside the best groups, shared experts, dense
/// first layers.

#include "model/families/family.h"

namespace slime::model {

void read_deepseek_v3(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, latent_defaults(fields));
  read_latent_attention(fields, config);
  read_shared_experts(fields, config);
  read_sigmoid_routing(fields, config);
  read_draft_layers(fields, config);
}

void write_deepseek_v3(const ModelConfig& config, json::object& out) {
  write_latent_attention(config, out);
  write_shared_experts(config, out);
  write_sigmoid_routing(config, out);
  write_draft_layers(config, out);
}

}  // namespace slime::model
