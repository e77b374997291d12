/// A model with experts whose matrices are codes, on a GPU: its codes are those that a CPU makes, decode and prompts of any
/// length give one distribution, and that is the CPU's for the same codes.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"
#include "kernels/matrix_formats.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateUpdate;
using kernels::MatrixFormat;

/// Experts of one block and a part of one: gates and ups of 144 rows.
model::ModelConfig small_experts() {
  const json::object config = json::parse(R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
      "moe_intermediate_size": 144, "num_experts": 16, "num_experts_per_tok": 4,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "max_position_embeddings": 2048, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true, "hidden_act": "silu", "eos_token_id": 2})")
                                  .as_object();
  return model::parse_model_config(config, "small");
}

model::Precision in_codes(model::Precision precision) {
  precision.matrices = MatrixFormat::kFp8Blocks;
  return precision;
}

/// The same made-up weights four times.
struct Networks {
  std::unique_ptr<model::Network> plain, codes;          // bfloat16, on the GPU
  std::unique_ptr<model::Network> cpu_plain, cpu_codes;  // float32
};

Networks same_networks() {
  at::manual_seed(7);
  const model::ModelConfig config = small_experts();
  const model::Precision gpu = model::Precision::on_gpu("bfloat16"),
                         cpu{.weights = at::kFloat, .activations = at::kFloat};
  Networks all;
  all.plain = model::make_uniform_network(config, gpu, 0.4);
  all.cpu_plain = model::make_uniform_network(config, cpu, 0);
  const auto& tensors = all.plain->weights().tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    model::Weights::view(all.cpu_plain->weights().flat(), all.cpu_plain->weights().tensors()[i])
        .copy_(model::Weights::view(all.plain->weights().flat(), tensors[i]));
  all.codes = model::make_blank_network(config, in_codes(gpu));
  all.codes->weights().copy_from(all.plain->weights());
  all.cpu_codes = model::make_blank_network(config, in_codes(cpu));
  all.cpu_codes->weights().copy_from(all.cpu_plain->weights());
  return all;
}

bool multiplies_codes() {
  return kernels::open_gpu().device().has_format(MatrixFormat::kFp8Blocks);
}

/// Log-probs of the last `count` tokens as an engine scores them.
Tensor scores_of(model::Network& network, const EngineConfig& config,
                 const std::vector<TokenId>& tokens, int64_t count) {
  const SystemClock clock;
  testing::Responses responses;
  engine::Engine engine(network, config, clock);
  auto scored = testing::greedy_request(tokens, 0);
  scored.rid = "scored";
  scored.logprob_start_len = static_cast<int64_t>(tokens.size()) - count;
  engine.submit(scored, responses.sink());
  const auto scores = responses.wait("scored").input_log_probs;
  EXPECT_GE(std::ssize(scores), count);
  const Tensor out = at::empty({count}, at::kDouble);
  for (int64_t t = 0; t < count; ++t)
    out[t] = scores[static_cast<std::size_t>(std::ssize(scores) - count + t)].value();
  return out;
}

double mean_distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().mean().item<double>();
}

TEST(GpuExpertCodes, AreThoseOfTheCpu) {
  SLIME_NEEDS_GPU();
  if (!multiplies_codes()) GTEST_SKIP() << "it multiplies no codes";
  const Networks all = same_networks();
  for (std::size_t i = 0; i < all.codes->weights().tensors().size(); ++i) {
    const auto there = all.codes->weights().stored(i), here = all.cpu_codes->weights().stored(i);
    ASSERT_EQ(there.size(), here.size());
    if (here.size() < 2) continue;  // a plain tensor
    for (std::size_t part = 0; part < here.size(); ++part)
      EXPECT_TRUE(there[part].cpu().contiguous().view(at::kByte).equal(
          here[part].contiguous().view(at::kByte)))
          << all.codes->weights().tensors()[i].name;
  }
}

/// 1,400 tokens at once go through the products of prompts, which make codes of rows, too; in pieces of 500 through those
/// that do not. A CPU has the same codes, and does not round activations.
TEST(GpuExpertCodes, PromptsOfAnyLengthHaveTheLogProbsOfTheSameCodes) {
  SLIME_NEEDS_GPU();
  if (!multiplies_codes()) GTEST_SKIP() << "it multiplies no codes";
  const Networks all = same_networks();
  const auto tokens = testing::some_tokens(1400, 1);
  constexpr int64_t kScored = 600;
  const EngineConfig whole{.kv_cache_bytes = 64 << 20};
  EngineConfig pieces = whole;
  pieces.max_prefill_tokens = 500;
  const Tensor at_once = scores_of(*all.codes, whole, tokens, kScored),
               in_pieces = scores_of(*all.codes, pieces, tokens, kScored),
               trained = scores_of(*all.plain, whole, tokens, kScored);
  const double moved = mean_distance(at_once, trained);
  const double apart = mean_distance(at_once, in_pieces);
  const model::TokenBatch batch = testing::pack({{tokens.begin(), tokens.end()}});
  model::TreeAttention attention(batch);
  const Tensor on_cpu =
      testing::last_log_probs(*all.cpu_codes, batch, attention, kScored).to(at::kDouble);
  const double from_cpu = mean_distance(in_pieces, on_cpu);
  RecordProperty("moved", std::to_string(moved));
  RecordProperty("apart", std::to_string(apart));
  RecordProperty("from_cpu", std::to_string(from_cpu));
  EXPECT_GT(moved, 1e-3) << "nothing was rounded";
  EXPECT_LT(apart, 0.8 * moved);
  // The GPU also rounds what products of attention's matrices read.
  EXPECT_LT(from_cpu, 0.85 * moved);
}

/// In recorded steps of one, two and five sequences.
TEST(GpuExpertCodes, DecodeGivesTheLogProbsOfTheTokensInAPrompt) {
  SLIME_NEEDS_GPU();
  if (!multiplies_codes()) GTEST_SKIP() << "it multiplies no codes";
  const Networks all = same_networks();
  const EngineConfig config{.kv_cache_bytes = 64 << 20};
  constexpr int64_t kDrawn = 64;
  double apart = 0, moved = 0;
  for (const int count : {1, 2, 5}) {
    const SystemClock clock;
    testing::Responses responses;
    std::vector<engine::GenerateRequest> requests;
    std::vector<GenerateUpdate> drawn;
    {
      engine::Engine engine(*all.codes, config, clock);
      for (int i = 0; i < count; ++i) {
        requests.push_back(
            testing::sampled_request(testing::some_tokens(40 + i, i), kDrawn, 100 + i));
        requests.back().rid = std::to_string(i);
        engine.submit(requests.back(), responses.sink());
      }
      for (const auto& request : requests) drawn.push_back(responses.wait(request.rid));
    }
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<std::size_t>(i);
      std::vector<TokenId> tokens = requests[index].input_ids;
      const GenerateUpdate& out = drawn[index];
      tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
      ASSERT_EQ(std::ssize(out.output_log_probs), kDrawn);
      const Tensor while_drawn = at::empty({kDrawn}, at::kDouble);
      for (int64_t t = 0; t < kDrawn; ++t)
        while_drawn[t] = static_cast<double>(out.output_log_probs[static_cast<std::size_t>(t)]);
      apart += mean_distance(while_drawn, scores_of(*all.codes, config, tokens, kDrawn));
      moved += mean_distance(while_drawn, scores_of(*all.plain, config, tokens, kDrawn));
    }
  }
  RecordProperty("apart", std::to_string(apart));
  RecordProperty("moved", std::to_string(moved));
  EXPECT_GT(moved, 1e-3);
  EXPECT_LT(apart, 0.5 * moved);
}

}  // namespace
}  // namespace slime
