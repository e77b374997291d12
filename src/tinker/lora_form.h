#pragma once

/// The matrices that a model of rank above 0 trains, by the words of create_model:
///
///   train_attn      query, key, value and output of attention
///   train_mlp       feed-forward layers, experts and shared experts
///   train_unembed   the output layer
///
/// Alpha is 32 at any rank.

#include <cstdint>
#include <string>

#include "core/field_reader.h"
#include "model/adapter_config.h"

namespace slime::tinker {

/// Of create_model's lora_config; rank 0: all weights of the model.
struct LoraWish {
  int64_t rank = 0;
  uint64_t seed = 0;
  bool trains_attention = true;
  bool trains_mlp = true;
  bool trains_output = true;
};

/// `seed`: where the request has none. Throws ConfigError, also for a rank above `most_rank`.
LoraWish read_lora(const FieldReader& body, int64_t most_rank, uint64_t seed);

/// As read_lora() reads it.
json::object to_json(const LoraWish& wish);

/// Throws ConfigError where nothing is left to train.
model::AdapterForm form_of(const LoraWish& wish, const model::ModelConfig& model,
                           const std::string& base_model);

/// What an adapter trains, as weights_info tells it.
json::object describe(const model::AdapterForm& form);

}  // namespace slime::tinker
