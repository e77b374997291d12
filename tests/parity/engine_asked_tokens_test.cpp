/// What the engine tells of tokens that were asked for by id, and of prompts that are scored while the
/// weights change.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/step_pipeline.h"
#include "engine_fixture.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::greedy_request;
using testing::some_tokens;
using testing::TestEngine;

TEST(EngineScores, TokensAskedForByIdHaveTheLogProbsOfTheBestOnes) {
  TestEngine bench("qwen3");
  GenerateRequest request = greedy_request(some_tokens(9), 3);
  request.logprob_start_len = 0;
  request.top_logprobs_num = 12;
  const GenerateUpdate best = bench.generate(request);
  ASSERT_EQ(best.output_top.size(), 3U);
  ASSERT_EQ(best.input_top.size(), 9U);
  request.top_logprobs_num = 0;
  for (const auto& [log_prob, id] : best.output_top[1]) request.token_ids_logprob.push_back(id);
  request.token_ids_logprob.push_back(request.token_ids_logprob.front());
  const GenerateUpdate asked = bench.generate(request);
  EXPECT_TRUE(asked.output_top.empty());
  ASSERT_EQ(asked.output_asked.size(), 3U);
  ASSERT_EQ(asked.input_asked.size(), 9U);
  EXPECT_TRUE(asked.input_asked[0].empty());
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(asked.output_asked[1][i], best.output_top[1][i]);
  EXPECT_EQ(asked.output_asked[1][12], best.output_top[1][0]);
  const std::map<TokenId, float> scored = [&] {
    std::map<TokenId, float> by_id;
    for (const auto& [log_prob, id] : asked.input_asked[4]) by_id[id] = log_prob;
    return by_id;
  }();
  for (const auto& [log_prob, id] : best.input_top[4]) {
    if (scored.contains(id)) {
      EXPECT_EQ(scored.at(id), log_prob);
    }
  }
}

/// Steps by hand, so that the weights change where the test says.
class Steps {
 public:
  explicit Steps(std::unique_ptr<model::Network> network)
      : network_(std::move(network)),
        config_(
            engine::completed({.max_prefill_tokens = 16, .kv_cache_bytes = 8 << 20}, *network_)),
        progress_(clock_),
        pipeline_(*network_, config_, clock_, progress_, engine::make_step_runner) {}

  engine::StepPipeline& pipeline() { return pipeline_; }
  model::Network& network() { return *network_; }
  void admit(GenerateRequest request) {
    pipeline_.admit({.handle = {},
                     .request = std::move(request),
                     .on_update = [this](GenerateUpdate update) { last = std::move(update); },
                     .submitted = clock_.now()});
  }

  GenerateUpdate last;

 private:
  const at::NoGradGuard no_grad_;
  SystemClock clock_;
  std::unique_ptr<model::Network> network_;
  const EngineConfig config_;
  engine::EngineProgress progress_;
  engine::StepPipeline pipeline_;
};

std::unique_ptr<model::Network> tiny_network() {
  return model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
}

GenerateRequest scoring(int64_t num_tokens) {
  GenerateRequest request = greedy_request(some_tokens(num_tokens), 0);
  request.logprob_start_len = 0;
  return request;
}

TEST(EngineScores, ScoresOfAPromptAreOfOneVersionAndSayOfWhich) {
  using engine::RunningRequests;
  for (const RunningRequests running :
       {RunningRequests::kRecompute, RunningRequests::kDrop, RunningRequests::kKeep}) {
    Steps changed(tiny_network());
    changed.admit(scoring(40));
    changed.pipeline().step();
    changed.pipeline().step();  // 32 of 40
    ASSERT_FALSE(changed.last.finish);
    changed.network().weights().flat().mul_(0.9);
    changed.pipeline().change_weights({}, nullptr, running, 7, /*stays_paused=*/false);
    for (int i = 0; i < 3; ++i) changed.pipeline().step();
    ASSERT_TRUE(changed.last.finish);
    EXPECT_EQ(changed.last.scored_by, 7);
    EXPECT_TRUE(changed.last.versions.empty());

    Steps fresh(tiny_network());
    fresh.network().weights().flat().mul_(0.9);
    fresh.admit(scoring(40));
    for (int i = 0; i < 3; ++i) fresh.pipeline().step();
    EXPECT_EQ(changed.last.input_log_probs, fresh.last.input_log_probs);
    EXPECT_EQ(fresh.last.input_log_probs.size(), 40U);
    EXPECT_EQ(fresh.last.scored_by, 0);
  }
}

}  // namespace
}  // namespace slime
