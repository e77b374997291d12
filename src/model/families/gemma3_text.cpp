/// Gemma 3 (text): norms before and after each layer that multiply with 1 + weight, embeddings times
/// the root of their size, norms of q and k, GELU, windows in all layers but every
/// sliding_window_pattern-th, and there another rotation. Published ones have no soft caps.

#include "model/families/family.h"

namespace slime::model {
namespace {

/// rope_parameters by type of layer in the newer form, else flat fields.
void read_both_ropes(const FieldReader& fields, ModelConfig& config) {
  Rope local;
  local.theta = fields.number("rope_local_base_freq", 1e-6, 1e30).value_or(10000);
  if (!fields.has("rope_theta")) config.rope.theta = 1e6;
  if (const auto ropes = fields.fields("rope_parameters")) {
    if (const auto rope = ropes->fields("full_attention"))
      read_rope_fields(*rope, *rope, config, {}, config.rope);
    if (const auto rope = ropes->fields("sliding_attention")) {
      read_rope_fields(*rope, *rope, config, {}, local);
      rope->expect(local.kind != Rope::Kind::kLongrope, "rope_type",
                   "may be longrope in all layers alone");
    }
  }
  config.local_rope = local;
}

void read_pattern(const FieldReader& fields, ModelConfig& config) {
  const int64_t window =
      fields.required().integer("sliding_window", 1, int64_t{1} << 32).value_or(1);
  read_windows(fields, config, window, 0);
  if (fields.has("layer_types")) return;
  const int64_t pattern = fields.integer("sliding_window_pattern", 1, 4096).value_or(6);
  for (int64_t i = pattern - 1; i < config.num_layers; i += pattern)
    config.window[static_cast<size_t>(i)] = 0;
}

}  // namespace

void read_gemma3_text(const FieldReader& fields, ModelConfig& config) {
  read_gemma(fields, config);
  read_soft_caps(fields, config, {});
  config.qk_norm = QkNorm::kPerHead;
  read_both_ropes(fields, config);
  read_pattern(fields, config);
}

void write_gemma3_text(const ModelConfig& config, json::object& out) {
  write_gemma(config, out);
  out["rope_local_base_freq"] = config.local_rope ? config.local_rope->theta : config.rope.theta;
  // One rotation for each type of layer: the flat fields are the older form.
  out.erase("rope_parameters");
}

}  // namespace slime::model
