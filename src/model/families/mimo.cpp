/// MiMo-7B: Qwen2 with a head size of its own.

#include "model/families/family.h"

namespace slime::model {

void read_mimo(const FieldReader& fields, ModelConfig& config) {
  read_qwen2(fields, config);
  fields.refuse("use_mrope", "is for pictures; text alone is read");
  read_draft_layers(fields, config);
}

void write_mimo(const ModelConfig& config, json::object& out) {
  write_qwen2(config, out);
  write_draft_layers(config, out);
}

}  // namespace slime::model
