/// Latent attention of published sizes on a GPU: what the engine draws in decode (absorbed, over pages,
/// recorded) against the trainer's scores of the same tokens (expanded, over segments).

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine_beside_trainer.h"
#include "kernels/gpu/for_tests.h"
#include "narrow_deepseek.h"

namespace slime {
namespace {

using testing::engine_beside_trainer;
using testing::LogProbDifferences;

model::ModelConfig config_of(int64_t dense_layers, bool has_query_latent) {
  json::object config = testing::narrow_deepseek();
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

/// The bound is the dense network's.
TEST(GpuLatent, WithExpertsReplayedDecodeGivesTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  const auto network = network_of(1, false);
  for (const int64_t count : {1, 18, 70}) {
    const LogProbDifferences found = engine_beside_trainer(
        *network, {.kv_cache_bytes = 256 << 20, .records_experts = true}, count);
    RecordProperty("mean_difference_" + std::to_string(count), std::to_string(found.mean));
    EXPECT_LT(found.mean, 0.02) << count << " requests";
  }
}

}  // namespace
}  // namespace slime
