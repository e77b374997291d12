/// Gemma 2 (arXiv 2408.00118): norms before and after each layer that multiply with 1 + weight, embeddings
/// times the root of their size, GELU, a window in every other layer from the first on, soft caps of
/// scores and logits.

#include "model/families/family.h"

namespace slime::model {

void read_gemma2(const FieldReader& fields, ModelConfig& config) {
  read_gemma(fields, config);
  read_soft_caps(fields, config, {.scores = 50, .logits = 30});
  const bool has_none = fields.raw().contains("sliding_window") && !fields.has("sliding_window");
  const int64_t absent = has_none ? 0 : 4096;
  read_windows(fields, config,
               fields.integer("sliding_window", 1, int64_t{1} << 32).value_or(absent), 0);
  if (fields.has("layer_types")) return;
  for (size_t i = 1; i < config.window.size(); i += 2) config.window[i] = 0;
}

void write_gemma2(const ModelConfig& config, json::object& out) {
  write_gemma(config, out);
  out["hidden_act"] =
      out.at("hidden_activation");  // some readers look for the one, some for the other
}

}  // namespace slime::model
