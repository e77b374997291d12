#pragma once

/// A family: how one `model_type` of config.json is read and which network it means.
///
/// Adding one is one file beside this header and one row in families/families.cpp. A family reads
/// its fields from a FieldReader (core), which collects every problem, so that one run shows all that
/// is wrong.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "model/config.h"
#include "model/network.h"

namespace slime::model {

struct Family {
  std::string_view model_type;
  std::string_view architecture;  // transformers' class
  void (*read)(const FieldReader& fields, ModelConfig& config);
  /// The way back, but for what write_common() writes.
  void (*write)(const ModelConfig& config, json::object& out);
  std::unique_ptr<Network> (*make)(const ModelConfig& config, const Precision& precision,
                                   const comm::Mesh& mesh);
};

/// The table of families.
std::span<const Family> families();
/// Null for a model type that is not in the table.
const Family* find_family(std::string_view model_type);
/// "llama, mistral, olmo2, ...": all of them.
std::string family_names();

void read_deepseek_v2(const FieldReader& fields, ModelConfig& config);
void read_deepseek_v3(const FieldReader& fields, ModelConfig& config);
void read_deepseek_v32(const FieldReader& fields, ModelConfig& config);
void read_gemma2(const FieldReader& fields, ModelConfig& config);
void read_gemma3_text(const FieldReader& fields, ModelConfig& config);
void read_glm4(const FieldReader& fields, ModelConfig& config);
void read_glm4_moe(const FieldReader& fields, ModelConfig& config);
void read_glm4_moe_lite(const FieldReader& fields, ModelConfig& config);
void read_glm_moe_dsa(const FieldReader& fields, ModelConfig& config);
void read_gpt_oss(const FieldReader& fields, ModelConfig& config);
void read_llama(const FieldReader& fields, ModelConfig& config);
void read_mimo(const FieldReader& fields, ModelConfig& config);
void read_minimax_m2(const FieldReader& fields, ModelConfig& config);
void read_mistral(const FieldReader& fields, ModelConfig& config);
void read_olmo2(const FieldReader& fields, ModelConfig& config);
void read_phi3(const FieldReader& fields, ModelConfig& config);
void read_qwen2(const FieldReader& fields, ModelConfig& config);
void read_qwen2_moe(const FieldReader& fields, ModelConfig& config);
void read_qwen3(const FieldReader& fields, ModelConfig& config);
void read_qwen3_5(const FieldReader& fields, ModelConfig& config);
void read_qwen3_5_moe(const FieldReader& fields, ModelConfig& config);
void read_qwen3_moe(const FieldReader& fields, ModelConfig& config);
void read_qwen3_next(const FieldReader& fields, ModelConfig& config);
void write_deepseek_v2(const ModelConfig& config, json::object& out);
void write_deepseek_v3(const ModelConfig& config, json::object& out);
void write_deepseek_v32(const ModelConfig& config, json::object& out);
void write_gemma2(const ModelConfig& config, json::object& out);
void write_gemma3_text(const ModelConfig& config, json::object& out);
void write_glm4(const ModelConfig& config, json::object& out);
void write_glm4_moe(const ModelConfig& config, json::object& out);
void write_glm4_moe_lite(const ModelConfig& config, json::object& out);
void write_glm_moe_dsa(const ModelConfig& config, json::object& out);
void write_gpt_oss(const ModelConfig& config, json::object& out);
void write_llama(const ModelConfig& config, json::object& out);
void write_mimo(const ModelConfig& config, json::object& out);
void write_minimax_m2(const ModelConfig& config, json::object& out);
void write_mistral(const ModelConfig& config, json::object& out);
void write_olmo2(const ModelConfig& config, json::object& out);
void write_phi3(const ModelConfig& config, json::object& out);
void write_qwen2(const ModelConfig& config, json::object& out);
void write_qwen2_moe(const ModelConfig& config, json::object& out);
void write_qwen3(const ModelConfig& config, json::object& out);
void write_qwen3_5(const ModelConfig& config, json::object& out);
void write_qwen3_5_moe(const ModelConfig& config, json::object& out);
void write_qwen3_moe(const ModelConfig& config, json::object& out);
void write_qwen3_next(const ModelConfig& config, json::object& out);

// What most families share.

/// vocab_size, sizes, heads, norm eps, activation, dropout, positions, rope, dtype, initializer
/// range. `defaults`: what transformers takes where a field is absent. Unset: as many key-value
/// heads as query heads, hidden_size / num_attention_heads.
struct CommonDefaults {
  std::optional<int64_t> kv_heads;
  std::optional<int64_t> head_dim;
  double norm_eps = 1e-6;
  bool needs_feed_forward = true;   // intermediate_size; false where all layers may have experts
  bool has_partial_rotary = false;  // partial_rotary_factor may be less than 1
  bool has_gelu = false;            // hidden_act
  double rotary_factor = 1;
  std::optional<int64_t> rotary_dim;          // of a family whose file says it in another way
  bool uses_head_dim = true;                  // false: sizes of heads are other fields
  bool yarn_is_longrope = false;              // what it was called in older files
  std::optional<int64_t> original_positions;  // where nothing stands beside the scaling
};
void read_common(const FieldReader& fields, ModelConfig& config, const CommonDefaults& defaults);

/// quantization_config: how files hold matrices. read_common() reads it among its own fields.
void read_stored_form(const FieldReader& fields, ModelConfig& config);

/// Theta and kind from rope_scaling, rope_parameters or one of the latter's members.
/// `above`: the fields that they lie in. max_positions and rotary_dim are known.
void read_rope_fields(const FieldReader& fields, const FieldReader& above,
                      const ModelConfig& config, const CommonDefaults& defaults, Rope& rope);

/// layer_types of the newer form, else the given rule: layers from `first_windowed` on have the
/// window. `window` 0 means that the file switches it off.
void read_windows(const FieldReader& fields, ModelConfig& config, int64_t window,
                  int64_t first_windowed);

/// What the Gemmas share: norms around each layer, GELU, scaled embeddings, tied unless the file says
/// otherwise, the scale of scores.
void read_gemma(const FieldReader& fields, ModelConfig& config);
void write_gemma(const ModelConfig& config, json::object& out);
/// attn_logit_softcapping and final_logit_softcapping. Null: none; absent: these.
struct SoftCaps {
  double scores = 0;
  double logits = 0;
};
void read_soft_caps(const FieldReader& fields, ModelConfig& config, const SoftCaps& absent);

/// Number and width of the experts, from these fields, and how many a token visits.
void read_expert_sizes(const FieldReader& fields, ModelConfig& config, std::string_view count,
                       std::string_view width);
/// Dense first layers, groups, a scaling factor, and shared experts side by side as one.
void read_shared_experts(const FieldReader& fields, ModelConfig& config);
void write_shared_experts(const ModelConfig& config, json::object& out);
/// Sigmoid scores with a selection bias.
void read_sigmoid_routing(const FieldReader& fields, ModelConfig& config);
void write_sigmoid_routing(const ModelConfig& config, json::object& out);
/// Of read_common(), where attention is latent.
CommonDefaults latent_defaults(const FieldReader& fields, double norm_eps = 1e-6);
/// Sizes of latent attention; what read_common() says of heads is not so then.
void read_latent_attention(const FieldReader& fields, ModelConfig& config);
void write_latent_attention(const ModelConfig& config, json::object& out);
/// Sizes of the indexer of sparse attention, in all layers; before read_latent_attention().
void read_indexer(const FieldReader& fields, ModelConfig& config);
void check_indexer(const FieldReader& fields, const ModelConfig& config);  // and behind it
/// Which layers have one: indexer_types, or index_topk_freq and index_skip_topk_offset.
void read_indexed_layers(const FieldReader& fields, ModelConfig& config);
void write_indexer(const ModelConfig& config, json::object& out);
/// Which layers have experts, layer by layer, where the file says it so.
void read_mlp_layer_types(const FieldReader& fields, ModelConfig& config);
/// Which layers are gated delta nets (layer_types, or all but every full_attention_interval-th), their
/// heads, and the gate of attention in the others.
void read_delta_nets(const FieldReader& fields, ModelConfig& config);
void write_delta_nets(const ModelConfig& config, json::object& out);
/// Softmax experts, normalised, with a gated shared one.
void read_gated_shared_experts(const FieldReader& fields, ModelConfig& config);
void write_gated_shared_experts(const ModelConfig& config, json::object& out);
/// Draft layers (families/draft_fields.cpp has the table of their names), which are carried until somebody
/// wants them computed.
void read_draft_layers(const FieldReader& fields, ModelConfig& config);
void write_draft_layers(const ModelConfig& config, json::object& out);
/// Which layers have experts: every decoder_sparse_step-th, without mlp_only_layers.
void read_sparse_layers(const FieldReader& fields, ModelConfig& config);
void write_sparse_layers(const ModelConfig& config, json::object& out);

/// What read_common() reads.
void write_common(const ModelConfig& config, json::object& out);
/// sliding_window: one window for all layers, or null.
void write_window(const ModelConfig& config, json::object& out);
/// layer_types: which layers have a window.
void write_layer_types(const ModelConfig& config, json::object& out);
/// Both, with use_sliding_window and max_window_layers.
void write_windows_by_layer(const ModelConfig& config, json::object& out);

}  // namespace slime::model
