/// Decode on a GPU against scoring: the log-probs of drawn tokens are those of the same tokens in a
/// prompt, which another kernel computes. With prompts that samples read together, and with keys
/// and values in fp8.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine_fixture.h"
#include "kernels/gpu_for_tests.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateUpdate;

/// A shape that the tensor-core kernels have; made-up weights whose log-probs spread over some
/// nats.
std::unique_ptr<model::Network> small_network() {
  const json::object config = json::parse(R"({
      "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
      "max_position_embeddings": 1024, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true, "hidden_act": "silu", "eos_token_id": 2})")
                                  .as_object();
  return model::make_uniform_network(model::parse_model_config(config, "small"),
                                     model::Precision::on_gpu("bfloat16"), 0.6);
}

/// Mean absolute difference between the log-probs of three groups of six samples and those of the
/// same tokens scored as prompts.
/// `scorer`: the engine that scores, if it is another one.
double mean_difference(model::Network& network, const EngineConfig& config,
                       const EngineConfig* scorer_config = nullptr) {
  const SystemClock clock;
  testing::Responses responses;
  engine::Engine engine(network, config, clock);
  std::unique_ptr<engine::Engine> other;
  if (scorer_config != nullptr)
    other = std::make_unique<engine::Engine>(network, *scorer_config, clock);
  engine::Engine& scorer = other == nullptr ? engine : *other;
  std::vector<engine::GenerateRequest> requests;
  for (int i = 0; i < 18; ++i) {
    // Two prompts of 180 tokens, and one that is too short to be shared.
    requests.push_back(
        testing::sampled_request(testing::some_tokens(i % 3 == 2 ? 30 : 180, i % 3), 70, 100 + i));
    requests.back().rid = std::to_string(i);
    engine.submit(requests.back(), responses.sink());
  }
  double sum = 0;
  int64_t count = 0;
  for (const auto& request : requests) {
    const GenerateUpdate out = responses.wait(request.rid);
    std::vector<TokenId> tokens = request.input_ids;
    tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
    auto scored = testing::greedy_request(tokens, 0);
    scored.rid = request.rid + " again";
    scored.logprob_start_len = static_cast<int64_t>(request.input_ids.size());
    scorer.submit(scored, responses.sink());
    const GenerateUpdate scores = responses.wait(scored.rid);
    const std::size_t length = out.output_log_probs.size();
    EXPECT_EQ(length, 70U);
    EXPECT_GE(scores.input_log_probs.size(), length);
    for (std::size_t t = 0; t < length; ++t, ++count) {
      const auto exact = scores.input_log_probs[scores.input_log_probs.size() - length + t];
      sum += std::abs(out.output_log_probs[t] - exact.value());
    }
  }
  return sum / static_cast<double>(count);
}

TEST(GpuDecode, OfSharedPromptsGivesTheLogProbsOfTheTokensInAPrompt) {
  SLIME_NEEDS_GPU();
  const auto network = small_network();
  const double alone =
      mean_difference(*network, {.kv_cache_bytes = 64 << 20, .shares_prompt_reads = false});
  const double shared = mean_difference(*network, {.kv_cache_bytes = 64 << 20});
  RecordProperty("alone", std::to_string(alone));
  RecordProperty("shared", std::to_string(shared));
  // Two kernels that round to bfloat16 in a different order; sharing adds nothing to that.
  EXPECT_LT(alone, 0.02);
  EXPECT_LT(shared, 1.2 * alone + 1e-4);
}

TEST(GpuDecode, WithAnFp8CacheGivesTheLogProbsOfTheTokensInAPrompt) {
  SLIME_NEEDS_GPU();
  const auto network = small_network();
  const EngineConfig exact{.kv_cache_bytes = 64 << 20};
  EngineConfig narrow = exact;
  narrow.kv_cache_dtype = "fp8_e4m3";
  EXPECT_EQ(2 * engine::kv_page_bytes(*network, at::kFloat8_e4m3fn),
            engine::kv_page_bytes(*network, at::kBFloat16));
  // Both kernels read the same numbers from the cache.
  const double same_cache = mean_difference(*network, narrow);
  RecordProperty("same_cache", std::to_string(same_cache));
  EXPECT_LT(same_cache, 0.02);
  // Against the cache in bfloat16: numbers of 3 bits in place of 8 are off by 2^-5 on average.
  const double moved = mean_difference(*network, narrow, &exact);
  RecordProperty("moved", std::to_string(moved));
  EXPECT_GT(moved, 1e-4);
  EXPECT_LT(moved, 0.1);
}

}  // namespace
}  // namespace slime
