#pragma once

/// A network and adapters beside all of its linear layers, of made-up numbers, for tests on a GPU.

#include <cmath>
#include <memory>

#include "core/json.h"
#include "model/adapter_tensors.h"
#include "model/adapters.h"
#include "model/network.h"

namespace slime::testing {

inline model::ModelConfig narrow_qwen3(int64_t head_dim) {
  json::object shape = json::parse(R"({
      "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
      "num_key_value_heads": 2, "intermediate_size": 512, "max_position_embeddings": 1024,
      "rope_theta": 10000, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
      "hidden_act": "silu", "eos_token_id": 2})")
                           .as_object();
  shape["head_dim"] = head_dim;
  return model::parse_model_config(shape, "narrow Qwen3");
}

/// What it adds to a product is, for any rank, about a fifth of what weights within 0.6 make of 256 inputs.
inline std::shared_ptr<model::AdapterTensors> made_up_adapter(model::Network& network,
                                                              int64_t rank) {
  model::AdapterConfig config;
  config.rank = rank;
  config.alpha = static_cast<double>(rank);
  config.targets = {"all-linear"};
  auto tensors = std::make_shared<model::AdapterTensors>(network.config(), network.weights(),
                                                         model::form_of(config, network.config()),
                                                         comm::Mesh::single());
  const double bound = 0.5 / std::pow(static_cast<double>(rank), 0.25);
  tensors->weights().flat().uniform_(-bound, bound);
  return tensors;
}

/// One that all rows take.
inline void add_made_up_adapter(model::Network& network, int64_t rank) {
  auto adapters = std::make_shared<model::Adapters>(network, 1);
  adapters->put(0, made_up_adapter(network, rank));
  network.set_adapters(std::move(adapters));
}

}  // namespace slime::testing
