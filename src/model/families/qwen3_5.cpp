/// Qwen3.5 and 3.6, dense and with experts, as models of text: Qwen3-Next's layers, whose projections
/// files hold one by one, and all experts of a layer as one tensor. Published settings lie in
/// text_config, published tensors under "model.language_model."; a model of text alone has neither.
/// What sees images is carried through save.

#include <optional>

#include "model/families/family.h"

namespace slime::model {
namespace {

bool is_of_text_alone(const ModelConfig& config) { return config.model_type.ends_with("_text"); }

/// `read` takes the settings of the text, wherever they lie.
void read_text(const FieldReader& fields, ModelConfig& config, bool has_experts) {
  const auto inner = is_of_text_alone(config) ? std::optional<FieldReader>()
                                              : fields.required().fields("text_config");
  const FieldReader& text = inner ? *inner : fields;
  read_common(text, config,
              {.kv_heads = has_experts ? 2 : 4,
               .head_dim = 256,
               .needs_feed_forward = !has_experts,
               .has_partial_rotary = true,
               .rotary_factor = 0.25});
  read_delta_nets(text, config);
  if (has_experts) {
    read_gated_shared_experts(text, config);
    config.experts.are_stacked = true;
  }
  if (inner) {
    config.ties_embeddings = fields.boolean("tie_word_embeddings").value_or(config.ties_embeddings);
    config.tensor_prefix = "model.language_model.";
    config.carried_prefixes = {"model.visual."};
    read_stored_form(fields, config);
  }
  read_draft_layers(text, config);
}

/// Settings of the text to where they are read from.
void write_text(const ModelConfig& config, json::object& out) {
  write_delta_nets(config, out);
  write_draft_layers(config, out);
  if (is_of_text_alone(config)) return;
  json::object whole{{"architectures", out["architectures"]}, {"model_type", config.model_type}};
  whole["tie_word_embeddings"] = config.ties_embeddings;
  if (const json::value* eos = out.if_contains("eos_token_id")) whole["eos_token_id"] = *eos;
  out.erase("architectures");
  out["model_type"] = config.model_type + "_text";
  whole["text_config"] = std::move(out);
  out = std::move(whole);
}

}  // namespace

void read_qwen3_5(const FieldReader& fields, ModelConfig& config) {
  read_text(fields, config, /*has_experts=*/false);
}

void read_qwen3_5_moe(const FieldReader& fields, ModelConfig& config) {
  read_text(fields, config, /*has_experts=*/true);
}

void write_qwen3_5(const ModelConfig& config, json::object& out) { write_text(config, out); }

void write_qwen3_5_moe(const ModelConfig& config, json::object& out) {
  write_gated_shared_experts(config, out);
  write_text(config, out);
}

}  // namespace slime::model
