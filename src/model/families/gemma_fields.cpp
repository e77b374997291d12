/// What gemma2 and gemma3_text read and write alike.

#include <array>

#include "model/families/family.h"

namespace slime::model {

void read_soft_caps(const FieldReader& fields, ModelConfig& config, const SoftCaps& absent) {
  const auto cap = [&](std::string_view name, double otherwise) {
    if (!fields.raw().contains(name)) return otherwise;
    return fields.number(name, 1e-3, 1e3).value_or(0);
  };
  config.score_cap = cap("attn_logit_softcapping", absent.scores);
  config.logit_cap = cap("final_logit_softcapping", absent.logits);
}

void read_gemma(const FieldReader& fields, ModelConfig& config) {
  read_common(fields, config, {.kv_heads = 4, .head_dim = 256, .has_gelu = true});
  static constexpr std::array<std::string_view, 1> kActivations = {"gelu_pytorch_tanh"};
  fields.one_of("hidden_activation", kActivations);
  fields.refuse("attention_bias", "is not supported for this model type");
  fields.refuse("use_bidirectional_attention", "is not supported");
  config.activation = Activation::kGelu;
  config.ties_embeddings = fields.boolean("tie_word_embeddings").value_or(true);
  config.query_scalar = fields.number("query_pre_attn_scalar", 1e-6, 1e6).value_or(256);
  config.norms_add_one = true;
  config.scales_embedding = true;
  config.norms = {.before_mixer = "input_layernorm",
                  .after_mixer = "post_attention_layernorm",
                  .before_feed_forward = "pre_feedforward_layernorm",
                  .after_feed_forward = "post_feedforward_layernorm"};
}

void write_gemma(const ModelConfig& config, json::object& out) {
  out.erase("hidden_act");
  out["hidden_activation"] = "gelu_pytorch_tanh";
  out["query_pre_attn_scalar"] = config.query_scalar;
  const auto cap = [](double cap) { return cap > 0 ? json::value(cap) : json::value(); };
  out["attn_logit_softcapping"] = cap(config.score_cap);
  out["final_logit_softcapping"] = cap(config.logit_cap);
  write_window(config, out);
  write_layer_types(config, out);
}

}  // namespace slime::model
