#include "model/config_difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "model/golden_models_for_tests.h"

namespace slime::model {
namespace {

/// Keys that change neither weights nor what is computed from them: ids of a tokenizer, lengths, training,
/// precision, and settings whose other values are read and have no effect here.
constexpr auto kWithoutEffect = std::to_array<std::string_view>({"attention_dropout",
                                                                 "aux_loss_alpha",
                                                                 "bos_token_id",
                                                                 "embd_pdrop",
                                                                 "eos_token_id",
                                                                 "ep_size",
                                                                 "image_token_id",
                                                                 "initializer_range",
                                                                 "max_position_embeddings",
                                                                 "num_mtp_modules",
                                                                 "num_nextn_predict_layers",
                                                                 "mtp_transformer_layers",
                                                                 "output_router_logits",
                                                                 "pad_token_id",
                                                                 "pretraining_tp",
                                                                 "resid_pdrop",
                                                                 "router_aux_loss_coef",
                                                                 "seq_aux",
                                                                 "use_cache",
                                                                 "use_mtp",
                                                                 "video_token_id",
                                                                 "vision_end_token_id",
                                                                 "vision_start_token_id"});

struct WithoutEffect {
  std::string_view model, key;
};

/// Keys that transformers does not read in these models either, or that only say again what another says.
constexpr auto kWithoutEffectIn = std::to_array<WithoutEffect>(
    {{"deepseek_v2", "norm_topk_prob"},      // the gate of this model never normalises
     {"glm_moe_dsa", "head_dim"},            // qk_rope_head_dim
     {"glm_moe_dsa", "index_topk_freq"},     // 3 chooses the same of so few layers
     {"glm_moe_dsa", "qk_head_dim"},         // the sum of two others
     {"gpt_oss", "experts_per_token"},       // num_experts_per_tok
     {"gpt_oss", "initial_context_length"},  // rope_scaling has it
     {"mimo", "attention_bias"},             // queries, keys and values always have one
     {"mimo", "sliding_window"},             // use_sliding_window is false
     {"mimo", "max_window_layers"},
     {"phi3", "attention_bias"},
     {"phi3", "original_max_position_embeddings"},  // rope_scaling is null
     {"qwen2", "sliding_window"},                   // use_sliding_window is false
     {"qwen2", "max_window_layers"},
     {"qwen2", "use_mrope"},
     {"qwen2_moe", "sliding_window"},
     {"qwen2_moe", "max_window_layers"},
     {"qwen3", "max_window_layers"},
     {"qwen3", "use_sliding_window"},  // layer_types would say which
     {"qwen3_moe", "max_window_layers"}});

bool has_no_effect(std::string_view model, std::string_view key) {
  return std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end() ||
         std::ranges::any_of(kWithoutEffectIn, [&](const WithoutEffect& one) {
           return one.model == model && one.key == key;
         });
}

class ConfigDifference : public ::testing::TestWithParam<const char*> {};

json::object config_json_of(const std::string& model) {
  std::ifstream file(golden_models::directory(model) / "config.json");
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), "config.json").as_object();
}

/// Another value of the same type; null where there is none that is surely valid.
json::value changed(const json::value& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_int64()) return value.as_int64() + 1;
  if (value.is_double()) return value.as_double() * 1.5;
  return nullptr;
}

ModelConfig config_of(const json::object& text) { return parse_model_config(text, "config.json"); }

/// Each number and switch of config.json: another value is refused, or told as a difference.
TEST_P(ConfigDifference, EveryFieldOfTheFileIsComparedOrRefused) {
  const json::object original = config_json_of(GetParam());
  const ModelConfig running = config_of(original);
  for (const auto& [name, value] : original) {
    if (has_no_effect(GetParam(), name)) continue;
    const json::value other = changed(value);
    if (other.is_null()) continue;
    json::object text = original;
    text[name] = other;
    std::optional<ModelConfig> fresh;
    try {
      fresh = config_of(text);
    } catch (const ConfigError&) {
      continue;  // refused
    }
    EXPECT_FALSE(differing_fields(running, *fresh).empty()) << std::string(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ConfigDifference, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

}  // namespace
}  // namespace slime::model
