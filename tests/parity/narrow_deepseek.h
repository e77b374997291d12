#pragma once

/// A narrow network around heads and latents of DeepSeek's sizes, as config.json says it; tests add what
/// they vary.

#include "core/json.h"

namespace slime::testing {

inline json::object narrow_deepseek() {
  return json::parse(R"({
      "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 16,
      "num_key_value_heads": 16, "intermediate_size": 512, "moe_intermediate_size": 64,
      "n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 4, "n_group": 1,
      "topk_group": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
      "norm_topk_prob": true, "routed_scaling_factor": 2.0, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "max_position_embeddings": 2048, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false, "hidden_act": "silu", "eos_token_id": 2})")
      .as_object();
}

}  // namespace slime::testing
