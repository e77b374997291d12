/// What families with latent attention read and write alike.

#include "model/families/family.h"

namespace slime::model {

CommonDefaults latent_defaults(const FieldReader& fields, double norm_eps) {
  return {.norm_eps = norm_eps,
          .rotary_dim = fields.integer("qk_rope_head_dim", 2, 4096),
          .uses_head_dim = false};
}

void read_latent_attention(const FieldReader& fields, ModelConfig& config) {
  constexpr int64_t kMost = 1 << 20;
  const FieldReader needed = fields.required();
  LatentConfig& latent = config.latent;
  latent.kv_rank = needed.integer("kv_lora_rank", 1, kMost).value_or(1);
  latent.q_rank = fields.integer("q_lora_rank", 1, kMost).value_or(0);
  latent.plain_dim = needed.integer("qk_nope_head_dim", 2, 4096).value_or(2);
  latent.value_dim = needed.integer("v_head_dim", 1, 4096).value_or(1);
  config.rotary_dim = needed.integer("qk_rope_head_dim", 2, 4096).value_or(2);
  config.head_dim = latent.plain_dim + config.rotary_dim;
  config.num_kv_heads = config.num_heads;
  fields.expect(config.rotary_dim % 2 == 0, "qk_rope_head_dim", "must be even");
  fields.expect(latent.plain_dim % 2 == 0, "qk_nope_head_dim", "must be even");
  fields.expect(latent.value_dim <= config.head_dim, "v_head_dim",
                "must be at most qk_nope_head_dim + qk_rope_head_dim");
  config.rotates_pairs = fields.boolean("rope_interleave").value_or(true);
  if (config.rope.kind == Rope::Kind::kLongrope)
    fields.note("rope_scaling", "is longrope, which latent attention has in no published model");
  fields.refuse("attention_bias", "is not supported with latent attention");
  read_windows(fields, config, 0, 0);
}

void write_latent_attention(const ModelConfig& config, json::object& out) {
  const LatentConfig& latent = config.latent;
  out["kv_lora_rank"] = latent.kv_rank;
  out["q_lora_rank"] = latent.q_rank > 0 ? json::value(latent.q_rank) : json::value();
  out["qk_nope_head_dim"] = latent.plain_dim;
  out["qk_rope_head_dim"] = config.rotary_dim;
  out["v_head_dim"] = latent.value_dim;
  out["rope_interleave"] = config.rotates_pairs;
  // transformers means the rotating numbers by this one, and rotates all of them.
  out["head_dim"] = config.rotary_dim;
  out.erase("partial_rotary_factor");
  out.at("rope_parameters").as_object().erase("partial_rotary_factor");
}

}  // namespace slime::model
