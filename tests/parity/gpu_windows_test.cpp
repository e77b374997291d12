/// Models with windows in some layers on a GPU, with heads that its kernels have: what requests draw while
/// they give pages back.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine_beside_trainer.h"
#include "kernels/gpu/for_tests.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::sampled_request;
using testing::some_tokens;

/// Five layers with a window of 96 tokens and two that see all: three groups of two, one with room to
/// spare. Heads of 64 have decode kernels, those of 256 tiles. `pattern` 1: no windows.
model::ModelConfig config_of(int64_t head_dim, bool has_caps, int64_t pattern) {
  json::object config = json::parse(R"({
      "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 512,
      "hidden_size": 256, "num_hidden_layers": 7, "num_attention_heads": 8,
      "num_key_value_heads": 2, "intermediate_size": 512, "hidden_activation": "gelu_pytorch_tanh",
      "max_position_embeddings": 1024, "sliding_window": 96, "sliding_window_pattern": 3,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "eos_token_id": 2})")
                            .as_object();
  config["head_dim"] = head_dim;
  config["sliding_window_pattern"] = pattern;
  if (has_caps) {
    config["attn_logit_softcapping"] = 4;
    config["final_logit_softcapping"] = 6;
  }
  return model::parse_model_config(config, "windows");
}

std::unique_ptr<model::Network> network_of(int64_t head_dim, bool has_caps = false,
                                           int64_t pattern = 3) {
  at::manual_seed(7);
  return model::make_uniform_network(config_of(head_dim, has_caps, pattern),
                                     model::Precision::on_gpu("bfloat16"), 0.3);
}

int64_t page_bytes(model::Network& network, const EngineConfig& config) {
  return engine::kv_page_bytes(network, engine::kv_storage_type(config, network),
                               engine::page_window(config, network).num_groups);
}

/// Longer than window, blocks and chunk together; the first four are samples of one prompt.
std::vector<GenerateRequest> workload() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 7; ++i) {
    const int64_t length = i < 4 ? 333 : 20 + 90 * (i - 4);
    requests.push_back(sampled_request(some_tokens(length, i < 4 ? 1 : i), 600 - length, 100 + i));
    requests.back().rid = std::to_string(i);
  }
  return requests;
}

struct Outcome {
  std::vector<GenerateUpdate> updates;
  engine::EngineLoad load;
};

Outcome run(model::Network& network, EngineConfig config, int64_t num_pages) {
  config.max_prefill_tokens = 64;
  config.kv_cache_bytes = num_pages * page_bytes(network, config);
  const SystemClock clock;
  testing::Responses responses;
  engine::Engine engine(network, config, clock);
  for (const GenerateRequest& request : workload()) engine.submit(request, responses.sink());
  Outcome outcome;
  for (const GenerateRequest& request : workload())
    outcome.updates.push_back(responses.wait(request.rid));
  outcome.load = *engine.load();
  return outcome;
}

/// 38 pages of layers that see all, and of three groups 18 each: 96, two blocks of 64, a chunk of 64.
constexpr int64_t kFewPages = 38 + 3 * 18 + 4;

/// In seven blocks of 64 a request of 600 tokens has nothing within its window at its end. Samples of a
/// prompt that is cached begin with three of them behind it.
constexpr int64_t kGivenBack = 7 * 448, kGivenBackBySamples = kGivenBack - 3 * 192;

TEST(GpuWindows, OneAtATimeRequestsHaveTheBitsOfARunThatGivesNothingBack) {
  SLIME_NEEDS_GPU();
  struct Case {
    int64_t pages;
    bool caches_prefixes;
    int64_t given_back;
  };
  for (const int64_t head_dim : {64, 256}) {
    const auto network = network_of(head_dim);
    // Where pages are few, shorter prefixes are found than in a run that keeps all. So none are cached.
    for (const Case& c :
         {Case{1000, true, kGivenBackBySamples}, Case{kFewPages, false, kGivenBack}}) {
      EngineConfig config{.max_running_requests = 1,
                          .enable_prefix_cache = c.caches_prefixes,
                          .gives_pages_back = false};
      const Outcome whole = run(*network, config, 1000);
      EXPECT_EQ(whole.load.num_kv_tokens_given_back, 0);
      config.gives_pages_back = true;
      const Outcome out = run(*network, config, c.pages);
      EXPECT_EQ(out.load.num_kv_tokens_given_back, c.given_back);
      for (std::size_t i = 0; i < out.updates.size(); ++i) {
        EXPECT_EQ(out.updates[i].cached_tokens, whole.updates[i].cached_tokens);
        EXPECT_EQ(out.updates[i].output_ids, whole.updates[i].output_ids) << head_dim << " " << i;
        EXPECT_EQ(out.updates[i].output_log_probs, whole.updates[i].output_log_probs)
            << head_dim << " " << i;
      }
    }
  }
}

/// Decode by its kernel and by tiles; prompts by tiles, also those that would be packed without caps. One at
/// a time and many.
TEST(GpuWindows, OfCappedScoresAndLogitsDecodeGivesTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  for (const auto& [head_dim, pattern] : {std::pair{64, 3}, {256, 3}, {128, 1}}) {
    const auto network = network_of(head_dim, true, pattern),
               plain = network_of(head_dim, false, pattern);
    for (const int64_t count : {1, 18}) {
      const auto found =
                     testing::engine_beside_trainer(*network, {.kv_cache_bytes = 512 << 20}, count),
                 uncapped =
                     testing::engine_beside_trainer(*plain, {.kv_cache_bytes = 512 << 20}, count);
      RecordProperty("mean_difference_" + std::to_string(head_dim) + "_" + std::to_string(count),
                     std::to_string(found.mean));
      EXPECT_GT(found.spread, 0.3);
      // Caps make numbers smaller, and their rounding.
      EXPECT_LT(found.mean, std::min(0.1, 2 * uncapped.mean))
          << count << " requests, heads of " << head_dim;
    }
  }
}

TEST(GpuWindows, DecodeGivesTheTrainersLogProbs) {
  SLIME_NEEDS_GPU();
  for (const int64_t head_dim : {64, 256}) {
    const auto network = network_of(head_dim);
    for (const int64_t count : {1, 2, 18, 70}) {
      const auto whole = testing::engine_beside_trainer(
          *network, {.kv_cache_bytes = 512 << 20, .gives_pages_back = false}, count);
      // Six requests of 760 tokens: evicted, retracted, computed again.
      const int64_t bytes = 6 * (48 + 3 * 45) * page_bytes(*network, {});
      for (const int64_t cache : {bytes, int64_t{512} << 20}) {
        const auto found =
            testing::engine_beside_trainer(*network, {.kv_cache_bytes = cache}, count);
        RecordProperty("mean_difference_" + std::to_string(head_dim) + "_" + std::to_string(count),
                       std::to_string(found.mean));
        EXPECT_GT(found.spread, 0.3);
        // Other tokens are sampled where numbers round otherwise, so means are of other samples. A wrong
        // page is nats away.
        EXPECT_LT(found.mean, std::min(0.1, 2 * whole.mean))
            << count << " requests, heads of " << head_dim;
      }
    }
  }
}

}  // namespace
}  // namespace slime
