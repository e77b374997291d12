#pragma once

/// Small networks whose passes have training arithmetic on a GPU: dense ones, and ones with experts of each form
/// that it has.

#include <ATen/ATen.h>

#include <memory>

#include "core/json.h"
#include "kernels/gpu/gpu.h"
#include "model/config.h"
#include "model/network.h"

namespace slime::testing {

inline constexpr const char* kTiny =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
  "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 640, "tie_word_embeddings": true,
  "max_position_embeddings": 4096, "rope_theta": 10000, "rms_norm_eps": 1e-6,
  "hidden_act": "silu", "initializer_range": 0.1})";
/// The shape of Qwen3-0.6B, with fewer layers: what they compute is alike.
inline constexpr const char* kSmall =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "vocab_size": 151936, "hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16,
  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
  "tie_word_embeddings": true, "max_position_embeddings": 40960, "rope_theta": 1000000,
  "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.02})";
/// Biases of queries, keys and values, seven query heads for each of theirs, a head of its own.
inline constexpr const char* kBiased =
    R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
  "vocab_size": 1000, "hidden_size": 896, "num_hidden_layers": 2, "num_attention_heads": 14,
  "num_key_value_heads": 2, "intermediate_size": 1216, "tie_word_embeddings": false,
  "max_position_embeddings": 4096, "rope_theta": 1000000, "rms_norm_eps": 1e-6,
  "hidden_act": "silu", "initializer_range": 0.1})";

/// A dense layer between two with experts, of which each token visits an odd number.
inline constexpr const char* kExperts = R"({"architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3,
  "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 640,
  "moe_intermediate_size": 96, "num_experts": 32, "num_experts_per_tok": 5, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [1], "tie_word_embeddings": true,
  "max_position_embeddings": 4096, "rope_theta": 10000, "rms_norm_eps": 1e-6,
  "hidden_act": "silu", "initializer_range": 0.1})";
/// Sigmoids with selection biases, a shared expert, a dense first layer.
inline constexpr const char* kSigmoid = R"({"architectures": ["Glm4MoeForCausalLM"],
  "model_type": "glm4_moe", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3,
  "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 640,
  "moe_intermediate_size": 88, "n_routed_experts": 24, "num_experts_per_tok": 3,
  "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": true, "n_group": 1,
  "topk_group": 1, "routed_scaling_factor": 1.5, "attention_bias": true, "use_qk_norm": true,
  "partial_rotary_factor": 0.5, "tie_word_embeddings": false, "max_position_embeddings": 4096,
  "rope_theta": 10000, "rms_norm_eps": 1e-5, "hidden_act": "silu", "initializer_range": 0.1})";
/// A shared expert behind a gate, weights that are not normalised.
inline constexpr const char* kSharedGate = R"({"architectures": ["Qwen2MoeForCausalLM"],
  "model_type": "qwen2_moe", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 640,
  "moe_intermediate_size": 96, "num_experts": 60, "num_experts_per_tok": 4,
  "norm_topk_prob": false, "shared_expert_intermediate_size": 384, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "tie_word_embeddings": false, "max_position_embeddings": 4096,
  "rope_theta": 10000, "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.1})";
/// Norms over all heads of a row, sigmoids with selection biases.
inline constexpr const char* kAllHeads = R"({"architectures": ["MiniMaxM2ForCausalLM"],
  "model_type": "minimax_m2", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
  "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "rotary_dim": 32,
  "intermediate_size": 96, "num_local_experts": 16, "num_experts_per_tok": 4,
  "scoring_func": "sigmoid", "use_routing_bias": true, "use_qk_norm": true,
  "qk_norm_type": "per_layer", "attn_type_list": [1, 1], "shared_intermediate_size": 0,
  "tie_word_embeddings": false, "max_position_embeddings": 4096, "rope_theta": 10000,
  "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.1})";
/// The sizes of Qwen3-30B-A3B's layers, with one of them beside a dense one.
inline constexpr const char* kWideExperts = R"({"architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe", "vocab_size": 1000, "hidden_size": 2048, "num_hidden_layers": 2,
  "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
  "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
  "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1],
  "tie_word_embeddings": true, "max_position_embeddings": 4096, "rope_theta": 1000000,
  "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.04})";

/// Each second row of routers' matrices becomes the one before it: of both experts the scores are equal.
inline void tie_routers(model::Network& network) {
  const model::Weights& weights = network.weights();
  for (const model::NamedWeight& weight : weights.tensors()) {
    if (!weight.name.ends_with(".gate.weight")) continue;
    const Tensor pairs = model::Weights::view(weights.flat(), weight).unflatten(0, {-1, 2});
    pairs.select(1, 1).copy_(pairs.select(1, 0));
  }
}

inline std::unique_ptr<model::Network> exact_network_of(const char* shape, bool has_ties = false) {
  kernels::open_gpu();
  auto network =
      model::make_network(model::parse_model_config(json::parse(shape).as_object(), "test"),
                          model::Precision::on_gpu("bfloat16"), /*seed=*/3);
  // Selection biases, which a new network has none of.
  const Tensor biases = network->weights().flat_constants();
  if (!has_ties && biases.defined() && biases.numel() > 0)
    biases.copy_(at::arange(biases.numel(), at::kFloat).mul(0.618).frac().mul(0.3));
  if (has_ties) tie_routers(*network);
  return network;
}

}  // namespace slime::testing
