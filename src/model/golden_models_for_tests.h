#pragma once

/// Registry of the golden models of tests/fixtures/models. Tests select them by property, so that a new
/// one is tested everywhere as soon as it has its row here.
///
///   INSTANTIATE_TEST_SUITE_P(
///       Models, Routing, ::testing::ValuesIn(golden_models::all(golden_models::has_experts)),
///       golden_models::name_of);
///
/// Properties are read from the configurations. A configuration that is not understood has none: tests of
/// all models say why.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "model/config.h"

namespace slime::golden_models {

struct GoldenModel {
  const char* name;  // of its folder
  /// The others are like one of these but for sizes and rope: slow tests leave them out.
  bool is_first_of_kind = false;
};

inline constexpr GoldenModel kGoldenModels[] = {
    {"deepseek_v2"},
    {"deepseek_v3", true},
    {"deepseek_v32", true},
    {"deepseek_v3_noq"},
    {"gemma2", true},
    {"gemma3_caps"},
    {"gemma3_text", true},
    {"glm4", true},
    {"glm4_moe", true},
    {"glm4_moe_lite"},
    {"glm_moe_dsa", true},
    {"gpt_oss", true},
    {"kimi_k2"},
    {"llama"},
    {"llama3_rope"},
    {"mimo", true},
    {"minimax_m2", true},
    {"mistral"},
    {"olmo2", true},
    {"phi3", true},
    {"qwen2"},
    {"qwen2_moe", true},
    {"qwen3", true},
    {"qwen3_5", true},
    {"qwen3_5_moe", true},
    {"qwen3_moe", true},
    {"qwen3_next", true},
};

inline std::filesystem::path directory(const std::string& name) {
  return std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models" / name;
}

using Property = bool (*)(const model::ModelConfig&);

inline bool has_experts(const model::ModelConfig& config) { return config.has_experts(); }
inline bool has_windows(const model::ModelConfig& config) {
  return std::ranges::any_of(config.window, [](int64_t window) { return window > 0; });
}
inline bool has_delta_nets(const model::ModelConfig& config) {
  return !config.delta.in_layer.empty();
}
inline bool has_latents(const model::ModelConfig& config) { return config.latent.kv_rank > 0; }
inline bool has_indexers(const model::ModelConfig& config) {
  return !config.indexer.in_layer.empty();
}
/// Plain feed-forward layers after attention of keys and values.
inline bool is_dense(const model::ModelConfig& config) {
  return !has_experts(config) && !has_delta_nets(config) && !has_latents(config);
}
/// Two tensor-parallel ranks have the same number of heads.
inline bool divides_by_two(const model::ModelConfig& config) {
  return config.num_heads % 2 == 0 && config.num_kv_heads % 2 == 0;
}

/// Names of those that have all these properties, in the order of the table.
template <typename... Has>
std::vector<const char*> all(const Has&... has) {
  std::vector<const char*> names;
  for (const GoldenModel& golden : kGoldenModels) {
    try {
      if constexpr (sizeof...(has) > 0) {
        const auto config = model::read_model_config(directory(golden.name));
        if (!(has(config) && ...)) continue;
      }
      names.push_back(golden.name);
    } catch (const ConfigError&) {
    }
  }
  return names;
}

/// The same, of the first of each kind.
template <typename... Has>
std::vector<const char*> kinds(const Has&... has) {
  std::vector<const char*> names = all(has...);
  std::erase_if(names, [](const std::string_view name) {
    return !std::ranges::find(kGoldenModels, name, &GoldenModel::name)->is_first_of_kind;
  });
  return names;
}

inline std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace slime::golden_models
