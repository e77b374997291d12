/// Phi-3 and Phi-4 (mini): one tensor for q, k and v and one for gate and up, a share of each head
/// rotates, no biases, one sliding window for all layers unless sliding_window is null. The
/// "longrope" scaling of the 128k variants is not read.

#include "model/families/family.h"

namespace slime::model {

void read_phi3(FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.norm_eps = 1e-5, .has_partial_rotary = true});
  config.has_fused_projections = true;
  fields.expect_number("embd_pdrop", 0);
  fields.expect_number("resid_pdrop", 0);
  read_windows(fields, config, fields.integer("sliding_window", 1, int64_t{1} << 32, 0), 0);
}

}  // namespace slime::model
