/// Samples of one prompt read it together on a GPU: what they draw is as probable as a prompt's
/// tokens are, which are computed by another kernel and without sharing.

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
double mean_difference(model::Network& network, const EngineConfig& config) {
  const SystemClock clock;
  testing::Responses responses;
  engine::Engine engine(network, config, clock);
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
    engine.submit(scored, responses.sink());
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

TEST(GpuSharedPrompt, LogProbsOfSamplesAreThoseOfTheirTokensInAPrompt) {
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

}  // namespace
}  // namespace slime
