#pragma once

/// Shapes of golden models, made so that two ranks hold whole blocks of 128 x 128 of each matrix, as codes need
/// (model/matrix_storage.h).

#include <array>
#include <initializer_list>
#include <string>

#include "core/json.h"
#include "model/golden_models_for_tests.h"

namespace slime::golden_models {

/// Biases, norms of queries and keys, experts, fused files, latents.
inline constexpr std::array kBlockModels = {"qwen2", "qwen3", "qwen3_moe", "phi3", "deepseek_v3"};

inline model::ModelConfig in_whole_blocks(const std::string& name) {
  json::object fields = read_json_file(directory(name) / "config.json").as_object();
  const auto set_where_given = [&](std::initializer_list<const char*> names, int64_t value) {
    for (const char* field : names)
      if (fields.contains(field)) fields[field] = value;
  };
  const bool has_head_dim = fields.contains("head_dim"),
             has_latents = fields.contains("kv_lora_rank");
  fields["hidden_size"] = 256;
  fields["intermediate_size"] = 512;
  fields["vocab_size"] = 317;
  fields["initializer_range"] = 0.1;
  // Heads of 32.
  fields["num_attention_heads"] = has_head_dim || has_latents ? 16 : 8;
  fields["num_key_value_heads"] = has_latents ? 16 : 8;
  set_where_given({"moe_intermediate_size", "shared_expert_intermediate_size"}, 256);
  set_where_given({"v_head_dim"}, 32);
  return model::parse_model_config(fields, name);
}

}  // namespace slime::golden_models
