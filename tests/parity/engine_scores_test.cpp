/// Log-probs of prompts on a device that has a step in flight, like a GPU: they come a step later than they
/// are computed, and are those of an engine that waits.

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "engine/model_runner.h"
#include "engine/prompt_scores.h"
#include "engine_fixture.h"

namespace slime::late_scores {
namespace {

using engine::Chunk;
using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateUpdate;

/// Computes at once and tells a step later. For requests that draw nothing: their tokens are all there.
class LateRunner final : public engine::StepRunner {
 public:
  LateRunner(model::Network& network, const engine::StepRunnerConfig& config)
      : own_(network, config) {}

  bool launch(std::span<const Chunk> chunks) override {
    Step& step = in_flight_.emplace_back();
    const std::vector<bool> scores = [&] {
      std::vector<bool> which;
      for (const Chunk& chunk : chunks) which.push_back(engine::scores_prompt(chunk));
      return which;
    }();
    own_.launch(chunks);
    step.tokens = own_.collect();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      step.scores.emplace_back();
      if (scores[i]) step.scores.back() = own_.take_scores(i);
    }
    most_in_flight = std::max(most_in_flight, in_flight_.size());
    return true;
  }
  std::vector<std::optional<kernels::SampledToken>> collect() override {
    collected_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    return std::move(collected_.tokens);
  }
  std::vector<kernels::SampledToken> take_scores(std::size_t chunk) override {
    return std::move(collected_.scores.at(chunk));
  }
  void copy_page(engine::PageId from, engine::PageId to) override { own_.copy_page(from, to); }
  void copy_weights(const engine::FreshWeights& fresh) override { own_.copy_weights(fresh); }
  void exchange_network(model::Network& network) override { own_.exchange_network(network); }
  double wait_for_weights() override { return own_.wait_for_weights(); }
  void reset() override { in_flight_.clear(); }
  void release_memory() override {}
  void resume_memory() override {}
  at::ScalarType kv_dtype() const override { return own_.kv_dtype(); }

  static inline std::size_t most_in_flight = 0;

 private:
  struct Step {
    std::vector<std::optional<kernels::SampledToken>> tokens;
    std::vector<std::vector<kernels::SampledToken>> scores;
  };
  engine::ModelRunner own_;
  std::deque<Step> in_flight_;
  Step collected_;
};

std::vector<GenerateRequest> prompts() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 9; ++i) {
    // Some have a prefix in common, of which the log-probs are wanted all the same.
    requests.push_back(testing::greedy_request(testing::some_tokens(11 + 23 * i, i % 3), 0));
    requests.back().rid = std::to_string(i);
    requests.back().logprob_start_len = i % 4 == 3 ? 20 : 0;
    requests.back().top_logprobs_num = i % 2 == 1 ? 3 : 0;
  }
  return requests;
}

std::vector<GenerateUpdate> scored(const engine::MakeStepRunner& make_runner, int64_t aborted) {
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  SystemClock clock;
  testing::Responses responses;
  engine::EngineConfig config;
  config.kv_cache_bytes = 8 << 20;
  config.max_prefill_tokens = 24;
  std::vector<GenerateUpdate> updates;
  engine::Engine engine(*network, config, clock, make_runner);
  EXPECT_TRUE(engine.pause(engine::PauseMode::kInPlace));
  for (const GenerateRequest& request : prompts()) engine.submit(request, responses.sink());
  EXPECT_TRUE(engine.resume());
  if (aborted >= 0) {
    EXPECT_TRUE(engine.abort_prefix(std::to_string(aborted)));
  }
  for (const GenerateRequest& request : prompts()) updates.push_back(responses.wait(request.rid));
  return updates;
}

void expect_same(const GenerateUpdate& a, const GenerateUpdate& b) {
  EXPECT_EQ(a.input_log_probs, b.input_log_probs) << a.rid;
  EXPECT_EQ(a.input_top, b.input_top) << a.rid;
  EXPECT_EQ(a.finish->kind, FinishReason::Kind::kLength) << a.rid;
}

TEST(EngineScores, OfADeviceThatRunsAheadAreThoseOfOneThatWaits) {
  const auto late = [](model::Network& network, const engine::StepRunnerConfig& config) {
    return std::make_unique<LateRunner>(network, config);
  };
  LateRunner::most_in_flight = 0;
  const auto ahead = scored(late, -1), plain = scored(engine::make_step_runner, -1);
  EXPECT_EQ(LateRunner::most_in_flight, 2U) << "steps that score were waited for";
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    const GenerateRequest request = prompts()[i];
    EXPECT_EQ(static_cast<int64_t>(ahead[i].input_log_probs.size()),
              static_cast<int64_t>(request.input_ids.size()) - request.logprob_start_len);
    expect_same(ahead[i], plain[i]);
  }
  // One that ends while its scores are on their way leaves those of the others alone.
  const auto without = scored(late, 8);
  for (std::size_t i = 0; i < 8; ++i) expect_same(without[i], plain[i]);
}

}  // namespace
}  // namespace slime::late_scores
