/// Drafts on a GPU. In float32 responses are those without drafts. In bfloat16 rows of a sequence go through other
/// kernels than one row does, so a draw near an edge may be another one; log-probs are then the trainer's for the
/// tokens that were drawn.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "draft_cases.h"
#include "engine_beside_trainer.h"
#include "kernels/gpu/for_tests.h"
#include "made_up_adapter.h"
#include "narrow_deepseek.h"

namespace slime::gpu_drafts {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using model::Precision;
using testing::answers_to;
using testing::greedy_request;
using testing::requests_of_all_forms;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

EngineConfig with_drafts(EngineConfig config, int64_t most, bool always = true) {
  config.drafts = {.most = most, .always = always};
  return config;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, double tolerance,
                 const std::string& rid) {
  ASSERT_EQ(got.size(), wanted.size()) << rid;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], tolerance) << rid << ", token " << i;
}

void expect_near(const engine::TopLogProbs& got, const engine::TopLogProbs& wanted,
                 double tolerance, const std::string& rid) {
  ASSERT_EQ(got.size(), wanted.size()) << rid;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), wanted[i].size()) << rid << ", token " << i;
    for (std::size_t j = 0; j < got[i].size(); ++j)
      EXPECT_NEAR(got[i][j].first, wanted[i][j].first, tolerance) << rid << ", token " << i;
  }
}

void expect_response(const GenerateUpdate& got, const GenerateUpdate& wanted, double tolerance) {
  ASSERT_EQ(got.output_ids, wanted.output_ids) << got.rid;
  expect_near(got.output_log_probs, wanted.output_log_probs, tolerance, got.rid);
  expect_near(got.output_top, wanted.output_top, tolerance, got.rid);
  expect_near(got.output_asked, wanted.output_asked, tolerance, got.rid);
  EXPECT_EQ(got.top_p_ids, wanted.top_p_ids) << got.rid;
  EXPECT_EQ(got.top_p_counts, wanted.top_p_counts) << got.rid;
  expect_near(got.top_p_log_probs, wanted.top_p_log_probs, tolerance, got.rid);
  EXPECT_EQ(got.routed_experts, wanted.routed_experts) << got.rid;
  ASSERT_TRUE(got.finish && wanted.finish);
  EXPECT_EQ(got.finish->kind, wanted.finish->kind) << got.rid;
}

bool has_penalties(const GenerateRequest& request) {
  const engine::SamplingParams& sampling = request.sampling;
  return sampling.frequency_penalty != 0 || sampling.presence_penalty != 0 ||
         sampling.repetition_penalty != 1;
}

class GpuDraftsOfModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { SLIME_NEEDS_GPU(); }
};

/// Side by side, also with requests that get no drafts, with prompts that are scored, and as recordings.
TEST_P(GpuDraftsOfModel, InFloat32ResponsesAreThoseWithoutDrafts) {
  const Precision gpu = Precision::on_gpu("float32");
  EngineConfig config;
  config.records_experts =
      model::read_model_config(golden_models::directory(GetParam())).has_experts();
  TestEngine plain(GetParam(), config, gpu);
  std::vector<GenerateRequest> requests =
      requests_of_all_forms(plain.network().config().vocab_size);
  for (GenerateRequest& request : requests) request.return_routed_experts = config.records_experts;
  const std::vector<GenerateUpdate> wanted = answers_to(requests, plain);
  struct Case {
    int64_t most;
    bool always;
  };
  for (const Case& it : {Case{1, true}, {3, true}, {8, true}, {7, false}}) {
    SCOPED_TRACE(::testing::Message() << it.most << (it.always ? " always" : " chosen"));
    TestEngine bench(GetParam(), with_drafts(config, it.most, it.always), gpu);
    const std::vector<GenerateUpdate> got = answers_to(requests, bench);
    DraftCounts drafts;
    for (std::size_t i = 0; i < got.size(); ++i) {
      expect_response(got[i], wanted[i], 2 * testing::log_prob_tolerance(GetParam()));
      drafts += got[i].drafts;
      if (has_penalties(requests[i % requests.size()])) {
        EXPECT_EQ(got[i].drafts.num_drafted, 0) << "their counts are on the device";
      }
    }
    if (!it.always) continue;
    // The second round repeats the first.
    EXPECT_GT(drafts.num_kept, drafts.num_steps / 8);
    EXPECT_LT(drafts.num_kept, drafts.num_drafted);
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, GpuDraftsOfModel,
                         ::testing::Values("qwen3", "gemma3_text", "gpt_oss", "qwen3_moe",
                                           "deepseek_v3", "deepseek_v32", "glm4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GpuDrafts, WithoutRecordingsResponsesAreThoseWithoutDrafts) {
  SLIME_NEEDS_GPU();
  const Precision gpu = Precision::on_gpu("float32");
  EngineConfig config;
  config.records_steps = false;
  TestEngine plain("qwen3", config, gpu);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  TestEngine bench("qwen3", with_drafts(config, 4), gpu);
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_response(got[i], wanted[i], 2e-4);
}

TEST(GpuDrafts, WherePagesAreScarceResponsesAreThoseWithoutDrafts) {
  SLIME_NEEDS_GPU();
  const Precision gpu = Precision::on_gpu("float32");
  EngineConfig config;
  TestEngine probe("qwen3", config, gpu);
  config.kv_cache_bytes = 12 * engine::kv_page_bytes(probe.network(), at::kFloat);
  TestEngine plain("qwen3", config, gpu);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  TestEngine bench("qwen3", with_drafts(config, 8), gpu);
  const auto got = answers_to(requests, bench);
  int64_t num_retractions = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_response(got[i], wanted[i], 2e-4);
    num_retractions += got[i].num_retractions;
  }
  EXPECT_GT(num_retractions, 0);
}

/// More rows than a recording has are launched as prompts are.
TEST(GpuDrafts, MoreRowsThanARecordingHasAreVerifiedToo) {
  SLIME_NEEDS_GPU();
  const Precision gpu = Precision::on_gpu("float32");
  constexpr int64_t kRequests = 100;
  EngineConfig config;
  config.kv_cache_bytes = 64 << 20;
  std::vector<GenerateUpdate> wanted;
  DraftCounts drafts;
  for (const int64_t most : {0, 11}) {
    config.drafts = {.most = most, .always = true, .forced_acceptance = 0.0};
    TestEngine bench("qwen3", config, gpu);
    for (int64_t i = 0; i < kRequests; ++i) {
      GenerateRequest request = greedy_request(some_tokens(12, static_cast<TokenId>(3 + i)), 24);
      request.rid = std::to_string(i);
      bench.submit(request);
    }
    for (int64_t i = 0; i < kRequests; ++i) {
      const GenerateUpdate got = bench.responses().wait(std::to_string(i));
      if (most == 0) {
        wanted.push_back(got);
        continue;
      }
      expect_response(got, wanted[static_cast<std::size_t>(i)], 2e-4);
      drafts += got.drafts;
    }
  }
  EXPECT_GT(drafts.num_drafted, 100 * 11 * 10);
}

TEST(GpuDrafts, OfAForcedAcceptanceAreCountedAsOnTheCpu) {
  SLIME_NEEDS_GPU();
  const auto request = greedy_request(some_tokens(8), 25);
  // Once the prompt is cached, all but its last token, the first step has drafts too.
  for (const auto& [acceptance, first, cached] :
       {std::tuple{0.0, DraftCounts{.num_drafted = 66, .num_kept = 0, .num_steps = 25},
                   DraftCounts{.num_drafted = 69, .num_kept = 0, .num_steps = 25}},
        std::tuple{1.0, DraftCounts{.num_drafted = 18, .num_kept = 18, .num_steps = 7},
                   DraftCounts{.num_drafted = 18, .num_kept = 18, .num_steps = 7}}}) {
    EngineConfig config;
    config.drafts = {.most = 3, .always = true, .forced_acceptance = acceptance};
    TestEngine on_cpu("qwen3", config, Precision::of("float32"));
    TestEngine on_gpu("qwen3", config, Precision::on_gpu("bfloat16"));
    for (int round = 0; round < 3; ++round) {  // as it is, then recorded
      for (TestEngine* bench : {&on_cpu, &on_gpu}) {
        const GenerateUpdate got = bench->generate(request);
        EXPECT_EQ(got.output_ids.size(), 25U);
        EXPECT_EQ(got.drafts, round == 0 ? first : cached)
            << acceptance << ", round " << round << (bench == &on_gpu ? ", GPU" : ", CPU");
      }
    }
  }
}

model::ModelConfig windowed(int64_t head_dim) {
  json::object shape = json::parse(R"({
      "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 7, "num_attention_heads": 8,
      "num_key_value_heads": 2, "intermediate_size": 512, "hidden_activation": "gelu_pytorch_tanh",
      "max_position_embeddings": 1024, "sliding_window": 96, "sliding_window_pattern": 3,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "eos_token_id": 2})")
                           .as_object();
  shape["head_dim"] = head_dim;
  return model::parse_model_config(shape, "windowed");
}

model::ModelConfig with_experts() {
  const json::object shape = json::parse(R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
      "moe_intermediate_size": 128, "num_experts": 16, "num_experts_per_tok": 4,
      "norm_topk_prob": true, "mlp_only_layers": [0], "decoder_sparse_step": 1,
      "max_position_embeddings": 1024, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false, "hidden_act": "silu"})")
                                 .as_object();
  return model::parse_model_config(shape, "with experts");
}

model::ModelConfig latent() {
  json::object shape = testing::narrow_deepseek();
  shape["first_k_dense_replace"] = 3;
  shape["q_lora_rank"] = json::value();
  return model::parse_model_config(shape, "latent");
}

struct Bfloat16Case {
  const char* name;
  std::function<model::ModelConfig()> config;
  double bound;  // of made-up weights: their log-probs spread over some nats
  const char* kv_cache_dtype = "auto";
  int64_t lora_rank = 0;  // of an adapter that all rows take; 0: there is none
};

struct Found {
  double mean = 0;  // absolute difference from the trainer's log-probs
  DraftCounts drafts;
};

/// Requests of one seed each, twice: the second time the first response is the draft. Two of three have the prompt of
/// others too, which all read together.
Found beside_trainer(model::Network& network, const EngineConfig& config, int64_t count) {
  const SystemClock clock;
  testing::Responses responses;
  engine::Engine engine(network, config, clock);
  double sum = 0;
  int64_t tokens_compared = 0;
  Found found;
  for (const std::string round : {"first", "second"}) {
    std::vector<GenerateRequest> requests;
    for (int64_t i = 0; i < count; ++i) {
      requests.push_back(sampled_request(some_tokens(i % 3 == 2 ? 30 : 400, i % 3), 50, 100 + i));
      requests.back().rid = round + std::to_string(i);
      requests.back().return_routed_experts = config.records_experts;
      engine.submit(requests.back(), responses.sink());
    }
    for (const GenerateRequest& request : requests) {
      const GenerateUpdate out = responses.wait(request.rid);
      EXPECT_EQ(out.output_ids.size(), 50U);
      std::vector<TokenId> tokens = request.input_ids;
      tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
      const Tensor trained = testing::trainers_log_probs(network, tokens, 50, out.routed_experts);
      const Tensor drawn =
          at::tensor(std::vector<double>(out.output_log_probs.begin(), out.output_log_probs.end()),
                     at::kDouble);
      sum += (drawn - trained).abs().sum().item<double>();
      tokens_compared += 50;
      found.drafts += out.drafts;
    }
  }
  found.mean = sum / static_cast<double>(tokens_compared);
  return found;
}

class GpuDraftsInBfloat16 : public ::testing::TestWithParam<Bfloat16Case> {};

/// One sequence, a few rows, a batch of a chain of products, and more than 256 rows.
TEST_P(GpuDraftsInBfloat16, LogProbsAreTheTrainersAsWithoutDrafts) {
  SLIME_NEEDS_GPU();
  at::manual_seed(7);
  const auto network = model::make_uniform_network(GetParam().config(),
                                                   Precision::on_gpu("bfloat16"), GetParam().bound);
  if (GetParam().lora_rank > 0) testing::add_made_up_adapter(*network, GetParam().lora_rank);
  EngineConfig config;
  config.kv_cache_bytes = 256 << 20;
  config.kv_cache_dtype = GetParam().kv_cache_dtype;
  // Where two experts are close, rounding chooses: the trainer visits those that were told.
  config.records_experts = network->config().has_experts();
  DraftCounts drafts;
  for (const int64_t count : {1, 5, 18, 70}) {
    const Found plain = beside_trainer(*network, config, count);
    for (const int64_t most : {1, 3, 7}) {
      const Found drafted = beside_trainer(*network, with_drafts(config, most), count);
      const std::string key = std::to_string(count) + "_" + std::to_string(most);
      RecordProperty("mean_difference_" + key, std::to_string(drafted.mean));
      EXPECT_LT(drafted.mean, 1.3 * plain.mean + 2e-3)
          << count << " requests, " << most << " drafts; without " << plain.mean;
      EXPECT_GT(drafted.drafts.num_drafted, 0) << key;
      drafts += drafted.drafts;
    }
  }
  // A response leaves that of the first round where rounding chooses another of many tokens that are
  // nearly as likely, and then shares nothing with it.
  EXPECT_GT(drafts.num_kept, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GpuDraftsInBfloat16,
    ::testing::Values(
        Bfloat16Case{"heads_of_64", [] { return testing::narrow_qwen3(64); }, 0.6},
        Bfloat16Case{"heads_of_128", [] { return testing::narrow_qwen3(128); }, 0.6},
        Bfloat16Case{"heads_of_256", [] { return windowed(256); }, 0.3},
        Bfloat16Case{"fp8_cache", [] { return testing::narrow_qwen3(128); }, 0.6, "fp8_e4m3"},
        Bfloat16Case{"adapter", [] { return testing::narrow_qwen3(128); }, 0.6, "auto", 32},
        Bfloat16Case{"windows", [] { return windowed(64); }, 0.3},
        Bfloat16Case{"experts", [] { return with_experts(); }, 0.3},
        Bfloat16Case{"latent", [] { return latent(); }, 0.45}),
    [](const auto& info) { return std::string(info.param.name); });

/// Steps without drafts are those of an engine without: bit for bit, on one sequence, of a text that nothing
/// follows from.
TEST(GpuDrafts, StepsWithoutDraftsHaveTheBitsOfAnEngineWithout) {
  SLIME_NEEDS_GPU();
  at::manual_seed(7);
  const auto network =
      model::make_uniform_network(testing::narrow_qwen3(128), Precision::on_gpu("bfloat16"), 0.6);
  GenerateRequest request = sampled_request(some_tokens(300), 100, 5);
  request.sampling.frequency_penalty = 1e-3;  // none for it
  std::vector<GenerateUpdate> updates;
  for (const int64_t most : {0, 7}) {
    EngineConfig config;
    config.kv_cache_bytes = 64 << 20;
    if (most > 0) config.drafts = {.most = most, .always = true};
    const SystemClock clock;
    testing::Responses responses;
    engine::Engine engine(*network, config, clock);
    request.rid = std::to_string(most);
    engine.submit(request, responses.sink());
    updates.push_back(responses.wait(request.rid));
  }
  EXPECT_EQ(updates[1].drafts.num_drafted, 0);
  EXPECT_EQ(updates[0].output_ids, updates[1].output_ids);
  EXPECT_EQ(updates[0].output_log_probs, updates[1].output_log_probs);
}

}  // namespace
}  // namespace slime::gpu_drafts
