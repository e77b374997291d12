/// Responses of an engine that verifies drafts: those of one that does not, to the bit.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>

#include "core/json.h"
#include "draft_cases.h"
#include "engine/step_pipeline.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::answers_to;
using testing::expect_equal;
using testing::greedy_request;
using testing::requests_of_all_forms;
using testing::some_tokens;
using testing::TestEngine;

EngineConfig drafting(int64_t most, bool always = true) {
  EngineConfig config;
  config.drafts = {.most = most, .always = always};
  return config;
}

class EngineDraftsOfModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineDraftsOfModel, ResponsesAreThoseWithoutDrafts) {
  TestEngine plain(GetParam(), {});
  const std::vector<GenerateRequest> requests =
      requests_of_all_forms(plain.network().config().vocab_size);
  const std::vector<GenerateUpdate> wanted = answers_to(requests, plain);
  EXPECT_EQ(plain.engine().load()->drafts, DraftCounts{});
  for (const int64_t most : {1, 3, 8}) {
    TestEngine bench(GetParam(), drafting(most));
    const std::vector<GenerateUpdate> got = answers_to(requests, bench);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
    const DraftCounts counts = bench.engine().load()->drafts;
    // The second round repeats the first.
    EXPECT_GT(counts.num_kept, counts.num_steps / 4) << most;
    EXPECT_LT(counts.num_kept, counts.num_drafted) << most;
  }
}

TEST_P(EngineDraftsOfModel, ResponsesOfOneAtATimeAreThoseOfManyTogether) {
  TestEngine together(GetParam(), {});
  const std::vector<GenerateRequest> requests =
      requests_of_all_forms(together.network().config().vocab_size);
  const std::vector<GenerateUpdate> wanted = answers_to(requests, together);
  EngineConfig config;
  config.max_running_requests = 1;
  TestEngine alone(GetParam(), config);
  const std::vector<GenerateUpdate> got = answers_to(requests, alone);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, EngineDraftsOfModel,
                         ::testing::Values("qwen3", "gemma3_text", "gpt_oss", "qwen3_moe",
                                           "deepseek_v3", "deepseek_v32", "glm4", "glm4_moe",
                                           "minimax_m2", "kimi_k2"),
                         [](const auto& info) { return info.param; });

TEST(EngineDrafts, ResponsesOfABfloat16ModelAreThoseWithoutDrafts) {
  TestEngine plain("qwen3", {}, "bfloat16");
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  TestEngine bench("qwen3", drafting(5), "bfloat16");
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  EXPECT_GT(bench.engine().load()->drafts.num_kept, 0);
}

TEST(EngineDrafts, ExpertsThatTokensVisitAreTold) {
  EngineConfig config;
  config.records_experts = true;
  TestEngine plain("qwen3_moe", config);
  auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  for (GenerateRequest& request : requests) request.return_routed_experts = true;
  const auto wanted = answers_to(requests, plain);
  config.drafts = {.most = 4, .always = true};
  TestEngine bench("qwen3_moe", config);
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  EXPECT_GT(bench.engine().load()->drafts.num_kept, 0);
}

TEST(EngineDrafts, ResponsesAreThoseWithoutDraftsWherePagesAreScarce) {
  EngineConfig config;
  config.kv_cache_bytes = 96 << 10;
  TestEngine plain("qwen3", config);
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  config.drafts = {.most = 8, .always = true};
  TestEngine bench("qwen3", config);
  const auto got = answers_to(requests, bench);
  int64_t num_retractions = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_equal(got[i], wanted[i]);
    num_retractions += got[i].num_retractions;
  }
  EXPECT_GT(num_retractions, 0);
  EXPECT_GT(bench.engine().load()->drafts.num_kept, 0);
}

TEST(EngineDrafts, DraftsAreChosenByWhatTheyCost) {
  TestEngine plain("qwen3", {});
  const auto requests = requests_of_all_forms(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  TestEngine bench("qwen3", drafting(7, /*always=*/false));
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
}

TEST(EngineDrafts, ConstrainedRequestsAndStatesHaveNone) {
  TestEngine states("qwen3_next", drafting(4));
  const GenerateRequest request = greedy_request(some_tokens(20), 30);
  states.generate(request);
  states.generate(request);
  EXPECT_EQ(states.engine().load()->drafts.num_drafted, 0);
}

/// Draws the tokens that it is told, whatever drafts come; in the step that is watched, what the case says.
class ScriptedDraws final : public engine::StepRunner {
 public:
  struct Script {
    std::deque<TokenId> next;
    bool is_watching = false;
    std::vector<kernels::SampledToken> drawn;  // in the first step with drafts that is watched
    std::vector<TokenId> drafts;               // of that step
    int64_t num_computed = -1;                 // when the step behind it begins
  };
  explicit ScriptedDraws(Script& script) : script_(script) {}

  void copy_page(engine::PageId, engine::PageId) override {}
  bool launch(std::span<const engine::Chunk> chunks) override {
    const engine::Chunk& chunk = chunks[0];
    const engine::Request& request = *chunk.request;
    drawn_.clear();
    if (!engine::draws_token(chunk)) return false;
    const std::vector<TokenId> drafts(request.tokens.end() - chunk.num_drafts,
                                      request.tokens.end());
    if (script_.is_watching && script_.drafts.empty() && !drafts.empty()) {
      script_.drafts = drafts;
      drawn_.assign(script_.drawn.begin(), script_.drawn.begin() + 1 + chunk.num_drafts);
      return false;
    }
    if (!script_.drafts.empty() && script_.num_computed < 0)
      script_.num_computed = request.num_computed;
    drawn_.push_back(next());
    for (const TokenId draft : drafts) {
      if (drawn_.back().id != draft) break;
      drawn_.push_back(next());
    }
    drawn_.resize(1 + drafts.size());  // behind a wrong draft anything may be drawn
    return false;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    if (drawn_.empty()) return {std::nullopt};
    return {drawn_.front()};
  }
  bool verifies_drafts() const override { return true; }
  std::vector<kernels::SampledToken> take_behind_drafts(std::size_t) override {
    return {drawn_.begin() + 1, drawn_.end()};
  }
  void copy_weights(const engine::FreshWeights&) override {}
  void exchange_network(model::Network&) override {}
  double wait_for_weights() override { return 0; }
  void reset() override { drawn_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return at::kFloat; }

 private:
  kernels::SampledToken next() {
    if (script_.next.empty()) return {.id = 1, .log_prob = -1};
    const TokenId id = script_.next.front();
    script_.next.pop_front();
    return {.id = id, .log_prob = -1};
  }

  Script& script_;
  std::vector<kernels::SampledToken> drawn_;  // of the step, behind one another
};

/// Each case of the golden file: the drafts are an earlier response to the same prompt, and the draws are
/// the case's.
TEST(EngineDrafts, GoldenCasesEmitWhatPlainDecodingDoes) {
  const json::object golden = read_json_file("tests/fixtures/speculation/accept.json").as_object();
  const auto numbers = [](const json::value& list) {
    std::vector<TokenId> out;
    for (const json::value& it : list.as_array())
      out.push_back(static_cast<TokenId>(it.to_number<int64_t>()));
    return out;
  };
  ASSERT_EQ(golden.at("cases").as_array().size(), 13U);
  for (const json::value& entry : golden.at("cases").as_array()) {
    const json::object& it = entry.as_object();
    SCOPED_TRACE(it.at("name").as_string().c_str());
    constexpr TokenId kFirst = 29;  // with the prompt, before any draft
    const std::vector<TokenId> drafts = numbers(it.at("drafts"));
    ScriptedDraws::Script script;
    script.next = {kFirst};
    script.next.insert(script.next.end(), drafts.begin(), drafts.end());
    script.next.push_back(kFirst);
    for (const json::value& drawn : it.at("drawn").as_array())
      script.drawn.push_back(
          {.id = static_cast<TokenId>(drawn.at("token").to_number<int64_t>()),
           .log_prob = static_cast<float>(drawn.at("log_prob").to_number<double>())});

    const at::NoGradGuard no_grad;
    SystemClock clock;
    const auto network =
        model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
    testing::Responses responses;
    EngineConfig config = drafting(static_cast<int64_t>(drafts.size()));
    config.kv_cache_bytes = 8 << 20;
    config.enable_prefix_cache = false;  // otherwise the prompt's last token has drafts behind it
    engine::Engine engine(*network, config, clock,
                          [&](model::Network&, const engine::StepRunnerConfig&) {
                            return std::make_unique<ScriptedDraws>(script);
                          });
    GenerateRequest request = greedy_request({200, 201, 202, 203}, 7);
    request.rid = "earlier";
    engine.submit(request, responses.sink());
    responses.wait("earlier");
    script.is_watching = true;
    request.rid = "drafted";
    if (!it.at("stop_id").is_null())
      request.sampling.stop_token_ids = {
          static_cast<TokenId>(it.at("stop_id").to_number<int64_t>())};
    const auto left = it.at("max_new_tokens_left").to_number<int64_t>();
    request.sampling.max_new_tokens = 1 + left;
    engine.submit(request, responses.sink());
    const GenerateUpdate out = responses.wait("drafted");

    const std::vector<TokenId> emitted = numbers(it.at("emitted"));
    if (left == 1) {
      // No draft can be kept: none is made.
      EXPECT_EQ(script.drafts.size(), 0U);
      EXPECT_EQ(out.output_ids.size(), 2U);
      continue;
    }
    const auto most = static_cast<std::size_t>(std::min<int64_t>(left - 1, 6));
    EXPECT_EQ(script.drafts, std::vector<TokenId>(drafts.begin(), drafts.begin() + most));
    ASSERT_GT(out.output_ids.size(), emitted.size());
    EXPECT_EQ(std::vector<TokenId>(out.output_ids.begin() + 1,
                                   out.output_ids.begin() + 1 + emitted.size()),
              emitted);
    for (std::size_t i = 0; i < emitted.size(); ++i)
      EXPECT_EQ(out.output_log_probs[1 + i], script.drawn[i].log_prob);
    if (!it.at("finish").is_null()) {
      EXPECT_EQ(out.output_ids.size(), 1 + emitted.size());
      EXPECT_EQ(out.finish->kind, it.at("finish").as_string() == "stop"
                                      ? FinishReason::Kind::kStop
                                      : FinishReason::Kind::kLength);
    } else {
      // Of the prompt, of the first token, and those that are kept.
      EXPECT_EQ(script.num_computed, 4 + it.at("keys_kept").to_number<int64_t>());
    }
  }
}

}  // namespace
}  // namespace slime
