/// Decode on a GPU against scoring: the log-probs of sampled tokens are those of the same tokens in a
/// prompt, which another kernel computes. With prompts that samples read together, and with keys
/// and values in fp8: there also against a twin on the CPU.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"
#include "kernels/rotary.h"
#include "kernels/tree_attention.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateUpdate;

/// A shape that the tensor-core kernels have.
model::ModelConfig small_config() {
  const json::object config = json::parse(R"({
      "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
      "max_position_embeddings": 1024, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true, "hidden_act": "silu", "eos_token_id": 2})")
                                  .as_object();
  return model::parse_model_config(config, "small");
}

/// Made-up weights whose log-probs spread over some nats.
std::unique_ptr<model::Network> small_network() {
  at::manual_seed(7);
  return model::make_uniform_network(small_config(), model::Precision::on_gpu("bfloat16"), 0.6);
}

/// The same weights in float32 on the CPU.
std::unique_ptr<model::Network> twin_of(model::Network& network) {
  auto twin = model::make_uniform_network(small_config(), model::Precision::of("float32"), 0);
  const auto& tensors = network.weights().tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    model::Weights::view(twin->weights().flat(), twin->weights().tensors()[i])
        .copy_(model::Weights::view(network.weights().flat(), tensors[i]));
  }
  return twin;
}

/// Attention of a whole sequence that reads keys and values as a cache in fp8 holds them, or as
/// they are.
class TwinAttention final : public model::Attention {
 public:
  explicit TwinAttention(bool is_fp8) : is_fp8_(is_fp8) {}

  Tensor attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override {
    const kernels::RotaryShape heads{layer.num_heads, layer.num_kv_heads, layer.head_dim,
                                     layer.norm_eps};
    Tensor heads_TE = kernels::norm_rotate(qkv_TE, positions_T, layer.q_norm, layer.k_norm,
                                           layer.cos_PR, layer.sin_PR, heads);
    if (is_fp8_) {
      Tensor cached = heads_TE.slice(1, layer.num_heads * layer.head_dim);
      cached.copy_(cached.clamp(-448, 448).to(at::kFloat8_e4m3fn));
    }
    return kernels::tree_attention(heads_TE, {{0, qkv_TE.size(0), -1}}, heads,
                                   {layer.scale, layer.window});
  }

 private:
  bool is_fp8_;
};

/// Log-probs of the last `count` tokens.
Tensor twin_log_probs(model::Network& twin, const std::vector<TokenId>& tokens, int64_t count,
                      bool is_fp8) {
  TwinAttention attention(is_fp8);
  return testing::last_log_probs(twin, testing::pack({{tokens.begin(), tokens.end()}}), attention,
                                 count);
}

/// Mean absolute difference between the log-probs of three groups of six samples and those of the
/// same tokens scored as prompts.
/// `scorer`: the engine that scores, if it is another one. `tokens_of_all`: the sequences, if asked
/// for; the last 70 tokens of each were sampled.
double mean_difference(model::Network& network, const EngineConfig& config,
                       const EngineConfig* scorer_config = nullptr,
                       std::vector<std::vector<TokenId>>* tokens_of_all = nullptr) {
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
    if (tokens_of_all != nullptr) tokens_of_all->push_back(tokens);
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
  // Against the cache in bfloat16: as far as rounding keys and values moves the twin, for the same
  // tokens. (Rounding elsewhere moves log-probs by a tenth of that.)
  std::vector<std::vector<TokenId>> sequences;
  const double moved = mean_difference(*network, narrow, &exact, &sequences);
  const auto twin = twin_of(*network);
  double expected = 0;
  for (const auto& tokens : sequences) {
    const Tensor difference =
        twin_log_probs(*twin, tokens, 70, true) - twin_log_probs(*twin, tokens, 70, false);
    expected += difference.abs().mean().item<double>() / static_cast<double>(sequences.size());
  }
  RecordProperty("moved", std::to_string(moved));
  RecordProperty("expected", std::to_string(expected));
  EXPECT_NEAR(moved, expected, 0.1 * expected);
}

TEST(GpuDecodeTwin, ScoresAsTheEngineOnTheCpu) {
  at::manual_seed(7);
  const auto network =
      model::make_uniform_network(small_config(), model::Precision::of("float32"), 0.6);
  const auto tokens = testing::some_tokens(200, 1);
  const SystemClock clock;
  testing::Responses responses;
  engine::Engine engine(*network, EngineConfig{.kv_cache_bytes = 16 << 20}, clock);
  auto scored = testing::greedy_request(tokens, 0);
  scored.rid = "scored";
  scored.logprob_start_len = 130;
  engine.submit(scored, responses.sink());
  const GenerateUpdate scores = responses.wait("scored");
  ASSERT_GE(scores.input_log_probs.size(), 70U);
  const Tensor plain = twin_log_probs(*network, tokens, 70, false);
  for (int64_t t = 0; t < 70; ++t) {
    const auto& engines = scores.input_log_probs[scores.input_log_probs.size() - 70 + t];
    EXPECT_NEAR(engines.value(), plain[t].item<double>(), 1e-4);
  }
  const Tensor rounded = twin_log_probs(*network, tokens, 70, true);
  EXPECT_GT((rounded - plain).abs().mean().item<double>(), 1e-3);
}

}  // namespace
}  // namespace slime
