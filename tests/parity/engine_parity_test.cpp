/// The engine against the golden continuations, against itself under every schedule, and against
/// the trainer's forward.

#include <gtest/gtest.h>

#include "engine/paged_kv_cache.h"
#include "engine_fixture.h"
#include "model/tree_attention.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::FixtureModel;
using testing::greedy_request;
using testing::run_together;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

std::vector<TokenId> golden_prompt(const FixtureModel& fixture) {
  return json::value_to<std::vector<TokenId>>(fixture.golden.at("greedy").at("prompt"));
}

/// The trainer's log-probs of the last `num_scored` tokens.
std::vector<float> trainer_log_probs(model::Network& network, const std::vector<TokenId>& tokens,
                                     int64_t num_scored, double temperature) {
  const auto batch = testing::pack({{tokens.begin(), tokens.end()}});
  model::TreeAttention attention(batch);
  const Tensor log_probs =
      testing::last_log_probs(network, batch, attention, num_scored, temperature).contiguous();
  const float* values = log_probs.const_data_ptr<float>();
  return {values, values + num_scored};
}

class EngineOnGoldenModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineOnGoldenModel, GreedyContinuationEqualsTheReference) {
  const FixtureModel fixture(GetParam());
  TestEngine bench(GetParam());
  const GenerateUpdate out = bench.generate(greedy_request(golden_prompt(fixture), 24));
  const auto& golden = fixture.golden.at("greedy");
  EXPECT_EQ(out.output_ids, json::value_to<std::vector<TokenId>>(golden.at("tokens")));
  const auto log_probs = json::value_to<std::vector<double>>(golden.at("logprobs"));
  ASSERT_EQ(out.output_log_probs.size(), log_probs.size());
  for (std::size_t i = 0; i < log_probs.size(); ++i)
    EXPECT_NEAR(out.output_log_probs[i], log_probs[i], testing::log_prob_tolerance(GetParam()));
  EXPECT_EQ(out.finish->kind, FinishReason::Kind::kLength);
}

TEST_P(EngineOnGoldenModel, LogProbsAreTheTrainers) {
  TestEngine bench(GetParam());
  double sum = 0;
  int64_t count = 0;
  const int64_t below = std::min<int64_t>(300, bench.network().config().vocab_size);
  for (int i = 0; i < 8; ++i) {
    const auto prompt = some_tokens(5 + 13 * i, i, below);
    auto request = sampled_request(prompt, 40, i);
    request.sampling.temperature = 0.8;
    const GenerateUpdate out = bench.generate(std::move(request));
    auto tokens = prompt;
    tokens.insert(tokens.end(), out.output_ids.begin(), out.output_ids.end());
    const auto expected = trainer_log_probs(bench.network(), tokens, 40, 0.8);
    for (std::size_t t = 0; t < expected.size(); ++t, ++count)
      sum += std::abs(expected[t] - out.output_log_probs[t]);
  }
  EXPECT_LT(sum / static_cast<double>(count), 1e-5);
}

TEST_P(EngineOnGoldenModel, ScoresOfAPromptAreTheGoldenLogProbs) {
  const FixtureModel fixture(GetParam());
  TestEngine bench(GetParam(), {.max_prefill_tokens = 10});
  const auto sequences = fixture.sequences();
  for (const std::size_t i : {1U, 2U, 3U}) {
    auto request = greedy_request({sequences[i].begin(), sequences[i].end()}, 0);
    request.logprob_start_len = 0;
    const GenerateUpdate out = bench.generate(request);
    EXPECT_TRUE(out.output_ids.empty());
    const Tensor golden = fixture.tensors.read("seq" + std::to_string(i) + ".logprobs");
    ASSERT_EQ(static_cast<int64_t>(out.input_log_probs.size()), golden.numel() + 1);
    EXPECT_FALSE(out.input_log_probs[0].has_value());
    for (int64_t p = 0; p < golden.numel(); ++p) {
      EXPECT_NEAR(*out.input_log_probs[p + 1], golden[p].item<float>(),
                  testing::log_prob_tolerance(GetParam()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineOnGoldenModel, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

/// Mixed requests: a group of four, other prompts, greedy and sampled.
std::vector<GenerateRequest> workload() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 12; ++i) {
    const auto prompt = some_tokens(i < 4 ? 45 : 3 + 9 * i, i < 4 ? 1 : i);
    requests.push_back(i % 3 == 2 ? greedy_request(prompt, 30)
                                  : sampled_request(prompt, 30, 100 + i));
    requests.back().rid = "r" + std::to_string(i);
  }
  return requests;
}

void expect_same_outputs(const std::vector<GenerateUpdate>& a,
                         const std::vector<GenerateUpdate>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].output_ids, b[i].output_ids) << a[i].rid;
    ASSERT_EQ(a[i].output_log_probs.size(), b[i].output_log_probs.size());
    for (std::size_t t = 0; t < a[i].output_log_probs.size(); ++t) {
      EXPECT_NEAR(a[i].output_log_probs[t], b[i].output_log_probs[t], 1e-5)
          << a[i].rid << ", token " << t;
    }
  }
}

std::vector<GenerateUpdate> each_alone() {
  std::vector<GenerateUpdate> out;
  TestEngine bench("qwen3", {.max_running_requests = 1, .enable_prefix_cache = false});
  for (const auto& request : workload()) out.push_back(bench.generate(request));
  return out;
}

TEST(EngineSchedules, ABatchGivesWhatEachRequestGivesAlone) {
  expect_same_outputs(run_together(workload(), {}), each_alone());
}

TEST(EngineSchedules, ChunkedPromptsGiveTheSame) {
  expect_same_outputs(run_together(workload(), {.max_prefill_tokens = 7}), each_alone());
}

TEST(EngineSchedules, RetractionUnderPressureGivesTheSame) {
  // 12 requests of up to 132 tokens in 20 pages of 16.
  TestEngine probe("qwen3");
  const int64_t page_bytes = engine::PagedKvCache::page_bytes(probe.network().blocks(), at::kFloat);
  const auto tight = run_together(workload(), {.kv_cache_bytes = 20 * page_bytes});
  int64_t retractions = 0;
  for (const auto& out : tight) retractions += out.num_retractions;
  EXPECT_GT(retractions, 0);
  expect_same_outputs(tight, each_alone());
}

TEST(EngineSchedules, APrefixHitGivesWhatAMissGives) {
  TestEngine bench("qwen3");
  const auto request = sampled_request(some_tokens(77), 20, 5);
  const GenerateUpdate miss = bench.generate(request);
  const GenerateUpdate hit = bench.generate(request);
  EXPECT_EQ(miss.cached_tokens, 0);
  EXPECT_EQ(hit.cached_tokens, 76) << "all but the token whose successor is sampled";
  expect_same_outputs({hit}, {miss});
  EXPECT_TRUE(bench.engine().flush_cache());
  EXPECT_EQ(bench.generate(request).cached_tokens, 0);
}

TEST(EngineSchedules, TheSamplesOfAGroupComputeTheirPromptOnce) {
  TestEngine bench("qwen3");
  bench.engine().pause(engine::PauseMode::kInPlace);  // so that all arrive in one step
  for (int i = 0; i < 4; ++i) {
    auto request = sampled_request(some_tokens(50), 8, i);
    request.rid = "s" + std::to_string(i);
    bench.submit(request);
  }
  bench.engine().resume();
  int64_t cached = 0;
  for (int i = 0; i < 4; ++i)
    cached += bench.responses().wait("s" + std::to_string(i)).cached_tokens;
  EXPECT_EQ(cached, 3 * 49);
}

}  // namespace
}  // namespace slime
