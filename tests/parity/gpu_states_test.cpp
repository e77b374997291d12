/// The engine on a GPU over networks whose layers keep a state of each request: whatever becomes of
/// requests, their tokens and log-probs are those of the CPU's engine.

#include <gtest/gtest.h>

#include "engine/cache_shape.h"
#include "engine/step_runner.h"
#include "engine_fixture.h"
#include "kernels/gpu/for_tests.h"
#include "state_cases.h"

namespace slime::engine {
namespace {

using testing::greedy_request;
using testing::sampled_request;
using testing::state_tokens;
using testing::TestEngine;

/// Of the same numbers whatever the precision.
std::unique_ptr<model::Network> fresh_network(const model::Precision& precision) {
  const auto on_cpu = testing::fresh_state_network(model::Precision::of("float32"));
  auto network = testing::fresh_state_network(precision);
  network->weights().flat().copy_(on_cpu->weights().flat());
  return network;
}

std::vector<GenerateRequest> gpu_workload() { return testing::state_workload(1); }

void expect_same_update(const GenerateUpdate& a, const GenerateUpdate& b) {
  testing::expect_same_response(a, b, 5e-4);
}

const std::vector<GenerateUpdate>& on_the_cpu() {
  static const std::vector<GenerateUpdate> all = [] {
    std::vector<GenerateUpdate> out;
    TestEngine bench(fresh_network(model::Precision::of("float32")),
                     {.max_running_requests = 1, .enable_prefix_cache = false});
    for (const auto& request : gpu_workload()) out.push_back(bench.generate(request));
    return out;
  }();
  return all;
}

/// Both rounds: recorded steps in the second.
int64_t expect_as_on_the_cpu(const EngineConfig& config) {
  TestEngine bench(fresh_network(model::Precision::on_gpu("float32")), config);
  int64_t retractions = 0;
  for (int round = 0; round < 2; ++round) {
    auto requests = gpu_workload();
    for (auto& request : requests) {
      request.rid += "." + std::to_string(round);
      bench.submit(request);
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const GenerateUpdate out = bench.responses().wait(requests[i].rid);
      retractions += out.num_retractions;
      expect_same_update(out, on_the_cpu()[i]);
    }
  }
  return retractions;
}

TEST(GpuEngineStates, GiveWhatTheCpuGives) {
  SLIME_NEEDS_GPU();
  expect_as_on_the_cpu({});
  expect_as_on_the_cpu({.max_prefill_tokens = 7});
  expect_as_on_the_cpu({.enable_prefix_cache = false});
  expect_as_on_the_cpu({.max_running_requests = 2});
}

TEST(GpuEngineStates, RetractionsUnderPressureGiveTheSame) {
  SLIME_NEEDS_GPU();
  const auto network = fresh_network(model::Precision::on_gpu("float32"));
  const int64_t page = kv_page_bytes(*network, at::kFloat), state = state_bytes(network->blocks());
  // 20 pages for 12 requests of up to 132 tokens, and room for 24 states.
  EXPECT_GT(expect_as_on_the_cpu({.max_running_requests = 12,
                                  .kv_cache_bytes = std::max(24 * state + 20 * page, 48 * state)}),
            0);
}

TEST(GpuEngineStates, APrefixIsGoneOnFrom) {
  SLIME_NEEDS_GPU();
  TestEngine bench(fresh_network(model::Precision::on_gpu("float32")), {});
  const auto request = sampled_request(state_tokens(77), 20, 5);
  const GenerateUpdate miss = bench.generate(request), hit = bench.generate(request);
  EXPECT_EQ(miss.cached_tokens, 0);
  EXPECT_EQ(hit.cached_tokens, 76);
  expect_same_update(hit, miss);
  testing::expect_goes_on_from_its_end(bench);
}

/// A stop that is noticed while the next step runs: the state has taken in the token that stopped.
TEST(GpuEngineStates, OfARequestThatStoppedServeTheNextTurn) {
  SLIME_NEEDS_GPU();
  TestEngine bench(fresh_network(model::Precision::on_gpu("float32")), {});
  const GenerateUpdate whole = bench.generate(greedy_request(state_tokens(40), 30));
  bench.engine().flush_cache();
  GenerateRequest stops = greedy_request(state_tokens(40), 30);
  stops.sampling.stop_token_ids = {whole.output_ids[10]};
  const GenerateUpdate begun = bench.generate(stops);
  ASSERT_LE(begun.output_ids.size(), 11U);
  auto tokens = state_tokens(40);
  tokens.insert(tokens.end(), begun.output_ids.begin(), begun.output_ids.end());
  const auto length = static_cast<int64_t>(tokens.size());
  const auto more = state_tokens(5, 9);
  tokens.insert(tokens.end(), more.begin(), more.end());
  const GenerateUpdate next = bench.generate(greedy_request(tokens, 20));
  EXPECT_GE(next.cached_tokens, length - 1);
  bench.engine().flush_cache();
  expect_same_update(next, bench.generate(greedy_request(tokens, 20)));
}

TEST(GpuEngineStates, PausesSleepAndUpdatesInTheMiddleLoseNothing) {
  SLIME_NEEDS_GPU();
  TestEngine bench(fresh_network(model::Precision::on_gpu("float32")), {});
  const GenerateUpdate undisturbed = bench.generate(sampled_request(state_tokens(20), 200, 3));
  const auto same_weights = fresh_network(model::Precision::on_gpu("float32"));
  for (int kind = 0; kind < 3; ++kind) {
    bench.engine().flush_cache();
    auto request = sampled_request(state_tokens(20), 200, 3);
    request.rid = "p" + std::to_string(kind);
    bench.submit(request);
    bench.responses().wait_for_tokens(request.rid, 5);
    if (kind == 0) {
      bench.engine().pause(PauseMode::kRetract);
      bench.engine().resume();
    } else if (kind == 1) {
      bench.engine().sleep();
      bench.engine().wake();
    } else {
      bench.engine().update_weights({.version = 1,
                                     .source = FromNetwork{same_weights.get()},
                                     .running = RunningRequests::kKeep});
    }
    expect_same_update(bench.responses().wait(request.rid), undisturbed);
  }
}

}  // namespace
}  // namespace slime::engine
