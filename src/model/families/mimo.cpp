/// MiMo-7B: Qwen2 with a head size of its own. The layers that predict further tokens
/// (model.mtp_layers) are not computed.

#include "model/families/family.h"

namespace slime::model {

void read_mimo(const FieldReader& fields, ModelConfig& config) {
  read_qwen2(fields, config);
  fields.refuse("use_mrope", "is for pictures; text alone is read");
  config.carried_prefixes.push_back("model.mtp_layers.");
}

void write_mimo(const ModelConfig& config, json::object& out) { write_qwen2(config, out); }

}  // namespace slime::model
