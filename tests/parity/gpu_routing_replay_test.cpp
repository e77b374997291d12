/// Choices of experts from an engine on a GPU: what it tells, whatever its schedule, is what the trainer's
/// pass over the same tokens chooses.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine_beside_trainer.h"
#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"
#include "model/router_pass.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

constexpr int kRequests = 6;

GenerateRequest request_of(int i) {
  // Three begin alike.
  GenerateRequest request =
      sampled_request(some_tokens(20 + 9 * i, i % 3 == 0 ? 3 : 5 + i, 100), 40, 7 + i);
  request.rid = fmt::format("r{}", i);
  request.return_routed_experts = true;
  return request;
}

/// Whom the trainer's pass on the CPU over prompt and response visits, without the last token.
std::vector<int16_t> trainers_choices(model::Network& network, std::vector<TokenId> tokens,
                                      const std::vector<TokenId>& response) {
  const at::NoGradGuard no_grad;
  tokens.insert(tokens.end(), response.begin(), response.end());
  auto batch = testing::pack({{tokens.begin(), tokens.end()}});
  const model::ModelConfig& config = network.config();
  const Tensor made_TYK =
      at::zeros({batch.num_tokens(), config.num_layers, config.experts.per_token}, at::kShort);
  model::RouterPass routers;
  routers.made_YTK = made_TYK.transpose(0, 1);
  batch.routers = &routers;
  model::TreeAttention attention(batch);
  network.forward(batch, attention);
  const auto* first = made_TYK.const_data_ptr<int16_t>();
  return {first, first + made_TYK.numel() - config.routing_width()};
}

class GpuRoutedExperts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { SLIME_NEEDS_GPU(); }
};

TEST_P(GpuRoutedExperts, AreTheTrainersWhateverTheSchedule) {
  const auto gpu = model::Precision::on_gpu("float32");
  TestEngine probe(GetParam(), {.records_experts = true}, gpu);
  const auto trainer =
      model::load_network(golden_models::directory(GetParam()), model::Precision::of("float32"));
  const int64_t page = engine::kv_page_bytes(probe.network(), at::kFloat);
  int64_t retractions = 0;
  const auto expect_trainers = [&](EngineConfig config, const char* what) {
    config.records_experts = true;
    TestEngine bench(GetParam(), config, gpu);
    retractions = 0;
    for (int round = 0; round < 2; ++round) {  // the second one begins with cached prefixes
      for (int i = 0; i < kRequests; ++i) {
        GenerateRequest request = request_of(i);
        request.rid += fmt::format("-{}", round);
        bench.submit(request);
      }
      for (int i = 0; i < kRequests; ++i) {
        const GenerateUpdate out = bench.responses().wait(fmt::format("r{}-{}", i, round));
        EXPECT_EQ(out.output_ids.size(), 40U) << what;
        EXPECT_EQ(out.routed_experts,
                  trainers_choices(*trainer, request_of(i).input_ids, out.output_ids))
            << what << ", request " << i << ", round " << round;
        retractions += out.num_retractions;
      }
    }
  };
  expect_trainers({}, "as it is");
  expect_trainers({.max_prefill_tokens = 7}, "in chunks");
  expect_trainers({.max_running_requests = 2}, "two at a time");
  expect_trainers({.enable_prefix_cache = false}, "without prefixes");
  // Steps are in flight when requests are retracted.
  expect_trainers({.kv_cache_bytes = 14 * page}, "under pressure");
  EXPECT_GT(retractions, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuRoutedExperts,
                         ::testing::Values("qwen2_moe", "qwen3_moe", "deepseek_v3_noq", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

/// Decode's own kernels: narrow products, up to 64 rows, and more.
TEST(GpuRoutedExperts, ReplayedDecodeInBfloat16GivesTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  const auto shape = json::parse(R"({"architectures": ["Qwen3MoeForCausalLM"],
      "model_type": "qwen3_moe", "vocab_size": 1001, "hidden_size": 256, "num_hidden_layers": 4,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
      "moe_intermediate_size": 128, "num_experts": 16, "num_experts_per_tok": 4,
      "norm_topk_prob": true, "mlp_only_layers": [0], "decoder_sparse_step": 1,
      "max_position_embeddings": 1024, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false, "hidden_act": "silu"})")
                         .as_object();
  at::manual_seed(7);
  const auto network = model::make_uniform_network(model::parse_model_config(shape, "wide experts"),
                                                   model::Precision::on_gpu("bfloat16"), 0.3);
  for (const int64_t count : {1, 18, 70, 150}) {
    const auto replayed = testing::engine_beside_trainer(
        *network, {.kv_cache_bytes = 256 << 20, .records_experts = true}, count);
    const auto free =
        testing::engine_beside_trainer(*network, {.kv_cache_bytes = 256 << 20}, count);
    RecordProperty("replayed_" + std::to_string(count), std::to_string(replayed.mean));
    RecordProperty("free_" + std::to_string(count), std::to_string(free.mean));
    fmt::print("{} requests: replayed {:.4f}, free {:.4f}, spread {:.2f}\n", count, replayed.mean,
               free.mean, replayed.spread);
    EXPECT_GT(replayed.spread, 0.3);
    // As far as two kernels of a dense model that round in another order (gpu_decode_test.cpp).
    EXPECT_LT(replayed.mean, 0.02) << count;
  }
}

}  // namespace
}  // namespace slime
