#include "model/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/families/family.h"
#include "model/golden_models_for_tests.h"

namespace slime::model {
namespace {

const std::filesystem::path kModels = SLIME_SOURCE_DIR "/tests/fixtures/models";

ModelConfig again(const ModelConfig& config) {
  ModelConfig parsed = parse_model_config(config_json(config), "config.json");
  parsed.raw.clear();
  return parsed;
}

/// A fixture's; of models of text alone the form that recent libraries write.
ModelConfig config_of(const Family& family) {
  std::string name(family.model_type);
  if (std::filesystem::exists(kModels / name)) return read_model_config(kModels / name);
  name.resize(name.size() - std::string_view("_text").size());
  const auto path = kModels / name / "config.v5.json";
  return parse_model_config(read_json_file(path).as_object(), path.string());
}

/// Six experts in three groups, in the second layer.
ExpertsConfig grouped_experts() {
  return {.in_layer = {false, true},
          .count = 6,
          .per_token = 2,
          .width = 12,
          .shared_width = 24,
          .score = RouterScore::kSigmoid,
          .has_selection_bias = true,
          .num_groups = 3,
          .groups_per_token = 2,
          .normalizes = true,
          .scaling = 2.5,
          .names = {.shared = "shared_experts"}};
}

/// A configuration of two layers as a program would make it, without a file.
ModelConfig made_in_code(std::string_view family) {
  ModelConfig config;
  config.model_type = family;
  config.vocab_size = 300;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = config.rotary_dim = 16;
  config.norm_eps = 1e-5;
  config.max_positions = 512;
  config.window = {0, 0};
  config.dtype = "bfloat16";
  config.eos_token_ids = {2, 7};
  if (family == "olmo2") {
    config.qk_norm = QkNorm::kAllHeads;
    config.norms = {.before_mixer = "",
                    .after_mixer = "post_attention_layernorm",
                    .before_feed_forward = "",
                    .after_feed_forward = "post_feedforward_layernorm"};
  }
  if (family == "phi3") {
    config.has_fused_qkv = config.has_fused_gate_up = true;
    config.rotary_dim = 12;
    config.window = {32, 32};
  }
  if (family == "qwen2") {
    config.has_qkv_bias = true;
    config.window = {0, 32};
  }
  if (family == "qwen3" || family == "qwen3_moe") config.qk_norm = QkNorm::kPerHead;
  if (family == "qwen2_moe" || family == "qwen3_moe") {
    config.experts.in_layer = {false, true};
    config.experts.count = 6;
    config.experts.per_token = 2;
    config.experts.width = 12;
    config.experts.normalizes = true;
  }
  if (family == "deepseek_v2" || family == "deepseek_v3" || family == "deepseek_v32" ||
      family == "glm4_moe_lite" || family == "glm_moe_dsa" || family == "kimi_k2") {
    config.latent = {.kv_rank = 24, .q_rank = 20, .plain_dim = 12, .value_dim = 14};
    config.rotary_dim = 8;
    config.head_dim = 20;
    config.num_kv_heads = config.num_heads;
    config.rotates_pairs = true;
    config.experts = grouped_experts();
    if (family == "deepseek_v32" || family == "glm_moe_dsa") {
      config.indexer = {.in_layer = {true, family == "deepseek_v32"},
                        .num_heads = 3,
                        .head_dim = 10,
                        .count = 7,
                        .rotates_pairs = family == "glm_moe_dsa"};
    }
    if (family == "deepseek_v2") {
      config.latent.q_rank = 0;
      config.experts.score = RouterScore::kSoftmax;
      config.experts.has_selection_bias = config.experts.normalizes = false;
      config.experts.best_of_group = 1;
    } else {
      config.carried_prefixes = {"model.layers.2."};
    }
    return config;
  }
  if (family == "gemma2" || family == "gemma3_text") {
    config.activation = Activation::kGelu;
    config.norms_add_one = config.scales_embedding = true;
    config.query_scalar = 24;
    config.window = {32, 0};
    config.score_cap = family == "gemma2" ? 40 : 0;
    config.logit_cap = 25;
    if (family == "gemma3_text") {
      config.qk_norm = QkNorm::kPerHead;
      config.local_rope = Rope{};
      config.rope = {.kind = Rope::Kind::kLinear, .theta = 1e6, .factor = 8};
    }
    config.norms = {.before_mixer = "input_layernorm",
                    .after_mixer = "post_attention_layernorm",
                    .before_feed_forward = "pre_feedforward_layernorm",
                    .after_feed_forward = "post_feedforward_layernorm"};
  }
  if (family == "gpt_oss") {
    config.has_qkv_bias = config.has_output_bias = config.has_sinks = true;
    config.window = {32, 0};
    config.experts = {.in_layer = {true, true},
                      .count = 6,
                      .per_token = 2,
                      .width = 96,
                      .normalizes = true,
                      .has_router_bias = true,
                      .are_in_turns = true,
                      .swiglu_limit = 7,
                      .names = {.router = "router"}};
    config.rope = {.kind = Rope::Kind::kYarn, .factor = 32, .original_max_positions = 4096};
  }
  if (family.starts_with("glm4")) {
    config.has_qkv_bias = true;
    config.rotary_dim = 8;
  }
  if (family == "glm4") {
    config.rotates_pairs = config.has_fused_gate_up = true;
    config.norms = {.before_mixer = "input_layernorm",
                    .after_mixer = "post_self_attn_layernorm",
                    .before_feed_forward = "post_attention_layernorm",
                    .after_feed_forward = "post_mlp_layernorm"};
  }
  if (family == "glm4_moe") {
    config.carried_prefixes = {"model.layers.2."};
    config.experts = grouped_experts();
  }
  if (family == "mimo") {
    config.has_qkv_bias = true;
    config.carried_prefixes = {"model.mtp_layers."};
  }
  if (family == "minimax_m2") {
    config.qk_norm = QkNorm::kAllHeads;
    config.rotary_dim = 4;
    config.experts = {.in_layer = {true, true},
                      .count = 6,
                      .per_token = 2,
                      .width = 96,
                      .score = RouterScore::kSigmoid,
                      .has_selection_bias = true,
                      .normalizes = true,
                      .names = {.prefix = "block_sparse_moe",
                                .gate = "w1",
                                .up = "w3",
                                .down = "w2",
                                .selection_bias = "e_score_correction_bias"}};
  }
  if (family == "qwen3_next" || family.starts_with("qwen3_5")) {
    config.delta = {.in_layer = {true, false},
                    .shape = {2, 4, 8, 12},
                    .taps = 4,
                    .is_grouped_by_key_head = family == "qwen3_next"};
    config.qk_norm = QkNorm::kPerHead;
    config.has_output_gate = config.norms_add_one = true;
    config.rotary_dim = 4;
    config.carried_prefixes = {"mtp."};
    if (family == "qwen3_5" || family == "qwen3_5_moe") {
      config.tensor_prefix = "model.language_model.";
      config.carried_prefixes = {"model.visual.", "mtp."};
    }
    if (family != "qwen3_5" && family != "qwen3_5_text") {
      config.experts = {.in_layer = {true, true},
                        .count = 6,
                        .per_token = 2,
                        .width = 12,
                        .shared_width = 20,
                        .has_shared_gate = true,
                        .normalizes = true,
                        .are_stacked = family != "qwen3_next"};
    }
  }
  if (family == "qwen2_moe") {
    config.has_qkv_bias = true;
    config.experts.shared_width = 20;
    config.experts.has_shared_gate = true;
  }
  return config;
}

TEST(ConfigJson, OfAFileItIsTheFile) {
  for (const Family& family : families()) {
    const ModelConfig config = config_of(family);
    EXPECT_EQ(config_json(config), config.raw) << family.model_type;
    EXPECT_EQ(parse_model_config(config_json(config), "config.json").raw, config.raw);
  }
}

TEST(ConfigJson, WithoutItsFileEveryFixtureMeansTheSameModel) {
  for (const char* name : golden_models::all()) {
    ModelConfig config = read_model_config(kModels / name);
    config.raw.clear();
    EXPECT_EQ(again(config), config) << name;
  }
}

TEST(ConfigJson, MadeInCodeEveryFamilyMeansTheSameModel) {
  for (const Family& family : families()) {
    const ModelConfig config = made_in_code(family.model_type);
    EXPECT_EQ(again(config), config) << family.model_type;
    EXPECT_EQ(config_json(config).at("architectures").at(0), json::value(family.architecture));
  }
  ModelConfig scaled = made_in_code("llama");
  scaled.rope = {.kind = Rope::Kind::kLlama3,
                 .theta = 5e5,
                 .factor = 8,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4,
                 .original_max_positions = 256};
  ModelConfig stretched = scaled;
  stretched.rope = {.kind = Rope::Kind::kYarn,
                    .factor = 4,
                    .original_max_positions = 256,
                    .beta_fast = 16,
                    .truncates = false,
                    .mscale = 0.5};
  EXPECT_EQ(again(stretched), stretched);
  stretched.rope = {.kind = Rope::Kind::kDynamic, .factor = 2};
  EXPECT_EQ(again(stretched), stretched);
  for (const char* family : {"llama", "phi3"}) {
    ModelConfig two_sided = made_in_code(family);
    const auto half = static_cast<size_t>(two_sided.rotary_dim / 2);
    two_sided.rope = {.kind = Rope::Kind::kLongrope,
                      .factor = 3,
                      .original_max_positions = 100,
                      .attention_factor = 1.25,
                      .short_factors = std::vector<double>(half, 1.5),
                      .long_factors = std::vector<double>(half, 7)};
    EXPECT_EQ(again(two_sided), two_sided) << family;
  }
  scaled.has_qkv_bias = scaled.has_output_bias = scaled.has_mlp_bias = true;
  EXPECT_EQ(again(scaled), scaled);
}

TEST(ConfigJson, APartOfAHeadRotatesThoughItsShareIsNoRoundNumber) {
  ModelConfig config = made_in_code("phi3");
  config.head_dim = 22;
  for (config.rotary_dim = 2; config.rotary_dim <= 22; config.rotary_dim += 2)
    EXPECT_EQ(again(config).rotary_dim, config.rotary_dim);
}

TEST(ConfigJson, WhatTheFamilyCannotSayIsRefused) {
  ModelConfig config = made_in_code("qwen2");
  config.has_qkv_bias = false;
  EXPECT_THROW(config_json(config), ConfigError);
  config = made_in_code("mistral");
  config.window = {0, 32};
  EXPECT_THROW(config_json(config), ConfigError);
}

}  // namespace
}  // namespace slime::model
