/// Phi-3 and Phi-4 (mini): one tensor for q, k and v and one for gate and up, a share of each head
/// rotates, no biases, one sliding window for all layers unless sliding_window is null.

#include "model/families/family.h"

namespace slime::model {

void read_phi3(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config,
              {.norm_eps = 1e-5,
               .has_partial_rotary = true,
               .yarn_is_longrope = true,
               .original_positions = 4096});
  config.has_fused_qkv = true;
  config.has_fused_gate_up = true;
  fields.number("embd_pdrop", 0, 0);
  fields.number("resid_pdrop", 0, 0);
  read_windows(fields, config, fields.integer("sliding_window", 1, int64_t{1} << 32).value_or(0),
               0);
}

void write_phi3(const ModelConfig& config, json::object& out) {
  write_window(config, out);
  if (config.rope.kind == Rope::Kind::kLongrope)
    out["original_max_position_embeddings"] = config.rope.original_max_positions;
  // transformers takes 32000 when the field is absent, which a small vocabulary does not have.
  out["pad_token_id"] = nullptr;
}

}  // namespace slime::model
