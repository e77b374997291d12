// Engines behind connections and a router: the tokens are those of one engine that is called
// directly (float32), whatever happens to the engines meanwhile.

#include "engine/remote/remote_engine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <list>
#include <thread>

#include "core/version_runs.h"
#include "engine/remote/engine_server.h"
#include "engine_fixture.h"
#include "router/router.h"

namespace slime::engine {
namespace {

using testing::fixture_directory;
using testing::Responses;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

/// An engine over a connection, as a worker serves it.
struct ServedEngine {
  explicit ServedEngine(const RemoteEngineConfig& config = {})
      : bench("qwen3"),
        second(model::load_network(fixture_directory("qwen3"), model::Precision::of("float32"))),
        networks{.running = &bench.network(),
                 .second = second.get(),
                 .running_handle = {},
                 .second_handle = {}} {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    remote = std::make_unique<RemoteEngine>(ends[0], config);
    server = std::make_unique<EngineServer>(bench.engine(), ends[1], networks);
    thread = std::jthread([this] { server->serve(); });
  }
  ~ServedEngine() { remote.reset(); }

  TestEngine bench;
  std::unique_ptr<model::Network> second;
  TwoNetworks networks;
  std::array<int, 2> ends{};
  std::unique_ptr<RemoteEngine> remote;
  std::unique_ptr<EngineServer> server;
  std::jthread thread;
};

std::vector<GenerateRequest> some_requests() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 24; ++i) {
    GenerateRequest request = sampled_request(some_tokens(5 + i / 4, i / 4), 40 + i, 100 + i);
    request.rid = "request-" + std::to_string(i);
    request.stream_interval = i % 3;
    if (i % 5 == 0) request.sampling.frequency_penalty = 0.5;
    if (i % 4 == 0) request.top_logprobs_num = 2;
    if (i % 7 == 0) request.logprob_start_len = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<GenerateUpdate> drawn_directly() {
  return testing::run_together(some_requests(), {.kv_cache_bytes = 8 << 20});
}

void expect_same(const GenerateUpdate& got, const GenerateUpdate& expected) {
  SCOPED_TRACE(expected.rid);
  EXPECT_EQ(got.output_ids, expected.output_ids);
  ASSERT_EQ(got.output_log_probs.size(), expected.output_log_probs.size());
  // Products of another batch add in another order.
  for (std::size_t i = 0; i < got.output_log_probs.size(); ++i)
    EXPECT_NEAR(got.output_log_probs[i], expected.output_log_probs[i], 1e-4);
  EXPECT_EQ(got.output_top.size(), expected.output_top.size());
  EXPECT_EQ(got.input_log_probs.size(), expected.input_log_probs.size());
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.finish->kind, expected.finish->kind);
  EXPECT_EQ(got.prompt_tokens, expected.prompt_tokens);
}

TEST(RemoteEngineParity, OverAConnectionTheTokensAreThoseOfTheEngine) {
  const std::vector<GenerateUpdate> expected = drawn_directly();
  Responses responses;
  ServedEngine served;
  for (const GenerateRequest& request : some_requests())
    served.remote->submit(request, responses.sink());
  for (const GenerateUpdate& one : expected) expect_same(responses.wait(one.rid), one);
}

TEST(RemoteEngineParity, SentWeightsAreThoseThatItComputesWith) {
  // Another model of the same shape: what it draws is the proof.
  TestEngine other("qwen3");
  const at::NoGradGuard no_grad;
  other.network().weights().flat().mul_(1.25);
  const GenerateRequest request = sampled_request(some_tokens(9), 20, 4);
  const GenerateUpdate expected = other.generate(request);
  Responses responses;
  // Pieces that do not divide the weights.
  ServedEngine served({.weight_piece_bytes = 10'007});
  GenerateRequest before = request, after = request;
  before.rid = "before";
  after.rid = "after";
  served.remote->submit(before, responses.sink());
  EXPECT_NE(responses.wait("before").output_ids, expected.output_ids);
  const auto updated =
      served.remote->update_weights({.version = 3, .source = FromNetwork{&other.network()}});
  ASSERT_TRUE(updated) << updated.error().message;
  EXPECT_EQ(served.remote->weight_version(), 3);
  served.remote->submit(after, responses.sink());
  const GenerateUpdate out = responses.wait("after");
  EXPECT_EQ(out.output_ids, expected.output_ids);
  EXPECT_EQ(out.versions, (std::vector<VersionRun>{{3, 20}}));
}

/// Requests run on while two networks take turns; whoever brings weights may write them at once.
TEST(RemoteEngineParity, SentWeightsComeBetweenStepsAndTheNetworksTakeTurns) {
  TestEngine other("qwen3");
  const at::NoGradGuard no_grad;
  const Tensor first = other.network().weights().flat().clone();
  Responses responses;
  ServedEngine served;
  for (int version = 1; version <= 5; ++version) {
    GenerateRequest running = sampled_request(some_tokens(12), 240, 7);
    running.rid = "running-" + std::to_string(version);
    served.remote->submit(running, responses.sink());
    responses.wait_for_tokens(running.rid, 5);
    ASSERT_TRUE(served.remote->pause(PauseMode::kInPlace));  // it has tokens left to draw
    Tensor flat = other.network().weights().flat();
    flat.copy_(first * (1 + 0.05 * version));
    ASSERT_TRUE(served.remote->update_weights({.version = version,
                                               .source = FromNetwork{&other.network()},
                                               .running = RunningRequests::kKeep}));
    ASSERT_TRUE(served.remote->resume());
    EXPECT_EQ(served.networks.second == served.second.get(), version % 2 == 0);
    GenerateRequest probe = sampled_request(some_tokens(9), 20, 4);
    probe.rid = "probe-" + std::to_string(version);
    served.remote->submit(probe, responses.sink());
    const GenerateUpdate out = responses.wait(probe.rid);
    EXPECT_EQ(out.versions, (std::vector<VersionRun>{{version, 20}}));
    ASSERT_TRUE(other.engine().update_weights({.version = version}));
    probe.rid = "cold-" + std::to_string(version);
    EXPECT_EQ(out.output_ids, other.generate(probe).output_ids);
    const GenerateUpdate drawn = responses.wait(running.rid);
    ASSERT_EQ(drawn.versions.size(), 2U);
    EXPECT_EQ(drawn.versions[0].version, version - 1);
    EXPECT_EQ(drawn.versions[1].version, version);
    EXPECT_EQ(num_tokens(drawn.versions), 240);
  }
}

/// The connection of an engine breaks in the middle, again and again; another one takes its place.
TEST(RemoteEngineParity, EnginesThatAreLostChangeNoToken) {
  const std::vector<GenerateUpdate> expected = drawn_directly();
  const SystemClock clock;
  Responses responses;
  router::Router router({.max_losses = 100}, clock);
  std::list<std::pair<ServedEngine, router::EngineId>> engines;
  const auto add = [&] {
    auto& [served, id] = engines.emplace_back();
    id = *router.join(*served.remote);
  };
  add();
  add();
  for (const GenerateRequest& request : some_requests()) router.submit(request, responses.sink());
  for (int loss = 0; loss < 4; ++loss) {
    responses.wait_for_tokens("request-23", 6 * (loss + 1));
    ::shutdown(engines.front().first.ends[1], SHUT_RDWR);
    router.leave(engines.front().second);
    engines.pop_front();
    add();
  }
  for (const GenerateUpdate& one : expected) expect_same(responses.wait(one.rid), one);
  for (auto& [served, id] : engines) router.leave(id);
}

}  // namespace
}  // namespace slime::engine
