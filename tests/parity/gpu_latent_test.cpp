/// Latent attention of published sizes on a GPU: what the engine draws in decode (absorbed, over pages,
/// recorded) against the trainer's scores of the same tokens (expanded, over segments).

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine_beside_trainer.h"
#include "kernels/gpu/for_tests.h"

namespace slime {
namespace {

using testing::engine_beside_trainer;
using testing::LogProbDifferences;

/// A narrow network around heads and latents of DeepSeek's sizes.
model::ModelConfig config_of(int64_t dense_layers, bool has_query_latent) {
  json::object config = json::parse(R"({
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
  config["first_k_dense_replace"] = dense_layers;
  config["q_lora_rank"] = has_query_latent ? json::value(128) : json::value();
  return model::parse_model_config(config, "latent");
}

/// Made-up weights whose log-probs spread over some nats.
std::unique_ptr<model::Network> network_of(int64_t dense_layers, bool has_query_latent) {
  at::manual_seed(7);
  return model::make_uniform_network(config_of(dense_layers, has_query_latent),
                                     model::Precision::on_gpu("bfloat16"), 0.45);
}

TEST(GpuLatent, DecodeGivesTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  for (const bool has_query_latent : {false, true}) {
    const auto network = network_of(3, has_query_latent);
    for (const int64_t count : {1, 2, 18, 70}) {
      const LogProbDifferences found =
          engine_beside_trainer(*network, {.kv_cache_bytes = 256 << 20}, count);
      RecordProperty("mean_difference_" + std::to_string(count), std::to_string(found.mean));
      EXPECT_GT(found.spread, 0.3);
      // As far as two kernels of a dense model that round in another order (gpu_decode_test.cpp).
      EXPECT_LT(found.mean, 0.02) << count << " requests, latent of queries " << has_query_latent;
    }
  }
}

TEST(GpuLatent, PromptsInChunksGiveTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  const auto network = network_of(3, false);
  const LogProbDifferences found =
      engine_beside_trainer(*network, {.max_prefill_tokens = 100, .kv_cache_bytes = 256 << 20}, 5);
  EXPECT_LT(found.mean, 0.02);
}

/// Where two experts are close, rounding chooses; and then log-probs are those of other experts.
TEST(GpuLatent, WithExpertsDecodeIsAsFarFromTheTrainerAsRoundingTakesIt) {
  SLIME_NEEDS_GPU();
  const auto network = network_of(1, false);
  for (const int64_t count : {1, 18, 70}) {
    const LogProbDifferences found =
        engine_beside_trainer(*network, {.kv_cache_bytes = 256 << 20}, count);
    RecordProperty("mean_difference_" + std::to_string(count), std::to_string(found.mean));
    EXPECT_GT(found.spread, 0.3);
    EXPECT_LT(found.mean, 0.08) << count << " requests";
  }
}

}  // namespace
}  // namespace slime
