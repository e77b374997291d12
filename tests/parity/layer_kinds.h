#pragma once

/// Configurations of models whose mixers are not grouped-query attention alone, with dense feed-forward
/// layers, for the tests of layouts: 8 heads, which 2 and 4 ranks can divide.

#include "model/config.h"
#include "train_cases.h"

namespace slime::parity {

inline model::ModelConfig with_layers(model::ModelConfig config, int64_t num_layers) {
  config.raw = {};
  if (config.has_experts())
    config.experts.in_layer.assign(static_cast<std::size_t>(num_layers), false);
  config.intermediate_size = 48;
  config.num_layers = num_layers;
  config.num_heads = 8;
  config.vocab_size = 320;
  config.window.assign(static_cast<std::size_t>(num_layers), 0);
  return config;
}

inline model::ModelConfig latent_model(int64_t num_layers) {
  model::ModelConfig config =
      with_layers(model::read_model_config(kModels + "deepseek_v3"), num_layers);
  config.num_kv_heads = 8;
  return config;
}

/// Each token looks at two that an indexer chose; every second layer takes the choice of the one before it.
inline model::ModelConfig sparse_model(int64_t num_layers = 2) {
  model::ModelConfig config =
      with_layers(model::read_model_config(kModels + "glm_moe_dsa"), num_layers);
  config.num_kv_heads = 8;
  config.indexer.in_layer.clear();
  for (int64_t layer = 0; layer < num_layers; ++layer)
    config.indexer.in_layer.push_back(layer % 2 == 0);
  config.indexer.count = 2;
  return config;
}

/// Gated delta nets of 8 value heads over 4 key heads; every `interval`th layer is attention with a gate.
inline model::ModelConfig delta_model(int64_t num_layers, int64_t interval) {
  model::ModelConfig config =
      with_layers(model::read_model_config(kModels + "qwen3_5"), num_layers);
  config.num_kv_heads = 4;
  config.delta.shape.key_heads = 4;
  config.delta.shape.value_heads = 8;
  config.delta.in_layer.clear();
  for (int64_t layer = 1; layer <= num_layers; ++layer)
    config.delta.in_layer.push_back(layer % interval != 0);
  return config;
}

}  // namespace slime::parity
