/// Qwen3-Next: three gated delta nets for each layer of attention, whose output has a gate and of whose
/// heads a quarter rotates; norms of 1 + weight; experts in all layers, with a gated shared one.

#include "model/families/family.h"

namespace slime::model {

void read_qwen3_next(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config,
              {.kv_heads = 2,
               .head_dim = 256,
               .needs_feed_forward = false,
               .has_partial_rotary = true,
               .rotary_factor = 0.25});
  read_delta_nets(fields, config);
  config.delta.is_grouped_by_key_head = true;
  read_gated_shared_experts(fields, config);
  config.experts.normalizes = fields.boolean("norm_topk_prob").value_or(true);
  read_draft_layers(fields, config);
}

void write_qwen3_next(const ModelConfig& config, json::object& out) {
  write_delta_nets(config, out);
  write_gated_shared_experts(config, out);
  out["norm_topk_prob"] = config.experts.normalizes;
  write_draft_layers(config, out);
}

}  // namespace slime::model
