/// The engine on networks whose layers keep a state of each request: whatever becomes of requests, their
/// tokens and log-probs are those of the trainer's forward.

#include <gtest/gtest.h>

#include "engine/cache_shape.h"
#include "engine/paged_kv_cache.h"
#include "engine_fixture.h"
#include "model/tree_attention.h"
#include "state_cases.h"

namespace slime::engine {
namespace {

using testing::greedy_request;
using testing::sampled_request;
using testing::state_tokens;
using testing::TestEngine;

std::unique_ptr<model::Network> fresh_network() {
  return testing::fresh_state_network(model::Precision::of("float32"));
}

std::vector<GenerateRequest> workload() { return testing::state_workload(3 + 9 * 11); }

void expect_same(const GenerateUpdate& a, const GenerateUpdate& b) {
  testing::expect_same_response(a, b, 2e-4);
}

std::vector<GenerateUpdate> run_together(const EngineConfig& config) {
  TestEngine bench(fresh_network(), config);
  for (const auto& request : workload()) bench.submit(request);
  std::vector<GenerateUpdate> out;
  for (const auto& request : workload()) out.push_back(bench.responses().wait(request.rid));
  return out;
}

const std::vector<GenerateUpdate>& each_alone() {
  static const std::vector<GenerateUpdate> all = [] {
    std::vector<GenerateUpdate> out;
    TestEngine bench(fresh_network(), {.max_running_requests = 1, .enable_prefix_cache = false});
    for (const auto& request : workload()) out.push_back(bench.generate(request));
    return out;
  }();
  return all;
}

void expect_as_alone(const std::vector<GenerateUpdate>& out) {
  ASSERT_EQ(out.size(), each_alone().size());
  for (std::size_t i = 0; i < out.size(); ++i) expect_same(out[i], each_alone()[i]);
}

TEST(EngineStates, LogProbsAreTheTrainersWhicheverWayAPromptIsCut) {
  for (const int64_t chunk : {512, 7}) {
    TestEngine bench(fresh_network(), {.max_prefill_tokens = chunk});
    for (const int64_t length : {1, 2, 33, 90}) {
      const auto prompt = state_tokens(length);
      const GenerateUpdate out = bench.generate(sampled_request(prompt, 40, length));
      std::vector<int64_t> ids(prompt.begin(), prompt.end());
      ids.insert(ids.end(), out.output_ids.begin(), out.output_ids.end());
      const auto batch = testing::pack({ids});
      model::TreeAttention attention(batch);
      const Tensor expected = testing::last_log_probs(bench.network(), batch, attention, 40);
      for (int64_t t = 0; t < 40; ++t)
        EXPECT_NEAR(out.output_log_probs[t], expected[t].item<float>(), 2e-4)
            << length << ", token " << t;
    }
  }
}

TEST(EngineStates, ABatchGivesWhatEachRequestGivesAlone) { expect_as_alone(run_together({})); }

TEST(EngineStates, ChunkedPromptsGiveTheSame) {
  expect_as_alone(run_together({.max_prefill_tokens = 7}));
}

TEST(EngineStates, RetractionsUnderPressureGiveTheSame) {
  const auto network = fresh_network();
  const int64_t page = engine::PagedKvCache::page_bytes(network->blocks(), at::kFloat),
                state = engine::state_bytes(network->blocks());
  // 20 pages for 12 requests of up to 132 tokens, and room for 24 states.
  const auto tight = run_together(
      {.max_running_requests = 12, .kv_cache_bytes = std::max(24 * state + 20 * page, 48 * state)});
  int64_t retractions = 0;
  for (const auto& out : tight) retractions += out.num_retractions;
  EXPECT_GT(retractions, 0);
  expect_as_alone(tight);
}

TEST(EngineStates, AFewStatesAreEnough) {
  // Four, for two running requests and two snapshots.
  expect_as_alone(run_together({.max_running_requests = 2}));
}

TEST(EngineStates, APrefixHitGivesWhatAMissGives) {
  TestEngine bench(fresh_network(), {});
  const auto request = sampled_request(state_tokens(77), 20, 5);
  const GenerateUpdate miss = bench.generate(request), hit = bench.generate(request);
  EXPECT_EQ(miss.cached_tokens, 0);
  EXPECT_EQ(hit.cached_tokens, 76) << "all but the token whose successor is sampled";
  expect_same(hit, miss);
  EXPECT_TRUE(bench.engine().flush_cache());
  EXPECT_EQ(bench.generate(request).cached_tokens, 0);
}

TEST(EngineStates, TheSamplesOfAGroupComputeTheirPromptOnce) {
  TestEngine bench(fresh_network(), {});
  bench.engine().pause(engine::PauseMode::kInPlace);  // so that all arrive in one step
  for (int i = 0; i < 4; ++i) {
    auto request = sampled_request(state_tokens(50), 8, i);
    request.rid = "s" + std::to_string(i);
    bench.submit(request);
  }
  bench.engine().resume();
  int64_t cached = 0;
  for (int i = 0; i < 4; ++i)
    cached += bench.responses().wait("s" + std::to_string(i)).cached_tokens;
  EXPECT_EQ(cached, 3 * 49);
}

TEST(EngineStates, ADialogueAndAResponseThatWasInterruptedGoOnFromWhereTheyEnded) {
  TestEngine bench(fresh_network(), {});
  testing::expect_goes_on_from_its_end(bench);
}

TEST(EngineStates, PausesSleepAndUpdatesInTheMiddleLoseNothing) {
  TestEngine bench(fresh_network(), {});
  const GenerateUpdate undisturbed = bench.generate(sampled_request(state_tokens(20), 100, 3));
  const auto same_weights = fresh_network();
  const auto disturb = [&](int kind) {
    switch (kind) {
      case 0:
        bench.engine().pause(engine::PauseMode::kRetract);
        bench.engine().resume();
        return;
      case 1:
        bench.engine().sleep();
        bench.engine().wake();
        return;
      case 2:
        bench.engine().update_weights({.version = 1,
                                       .source = engine::FromNetwork{same_weights.get()},
                                       .running = engine::RunningRequests::kKeep});
        return;
      default:
        bench.engine().update_weights({.version = 2,
                                       .source = engine::FromNetwork{same_weights.get()},
                                       .running = kind == 3 ? engine::RunningRequests::kRecompute
                                                            : engine::RunningRequests::kDrop});
    }
  };
  for (int kind = 0; kind < 5; ++kind) {
    bench.engine().flush_cache();
    auto request = sampled_request(state_tokens(20), 100, 3);
    request.rid = "p" + std::to_string(kind);
    bench.submit(request);
    bench.responses().wait_for_tokens(request.rid, 5);
    disturb(kind);
    expect_same(bench.responses().wait(request.rid), undisturbed);
  }
}

TEST(EngineStates, NewWeightsBeginPrefixesAnew) {
  TestEngine bench(fresh_network(), {});
  const auto request = greedy_request(state_tokens(50), 10);
  bench.generate(request);
  {
    const at::NoGradGuard no_grad;
    bench.engine().run_exclusive([&] { Tensor(bench.network().weights().flat()).mul_(1.05); });
  }
  bench.engine().update_weights({.version = 7});
  const GenerateUpdate fresh = bench.generate(request);
  EXPECT_EQ(fresh.cached_tokens, 0);
  expect_same(bench.generate(request), fresh);
}

TEST(EngineStates, ACacheWithoutRoomForTwoStatesIsRefused) {
  try {
    TestEngine bench(fresh_network(), {.kv_cache_bytes = 20'000});
    FAIL() << "it was started";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("the state of one request takes"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace slime::engine
