// Engines behind connections and a router: the tokens are those of one engine that is called
// directly (float32), whatever happens to the engines meanwhile.

#include "engine/remote/remote_engine.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <list>
#include <thread>

#include "core/version_runs.h"
#include "engine/remote/engine_server.h"
#include "engine_fixture.h"
#include "model/weight_checksums.h"
#include "router/router.h"
#include "sync/publisher.h"

namespace slime::engine {
namespace {

using testing::Responses;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

/// An engine over a connection, as a worker serves it.
struct ServedEngine {
  explicit ServedEngine(const RemoteEngineConfig& config = {})
      : bench("qwen3"),
        second(model::load_network(golden_models::directory("qwen3"),
                                   model::Precision::of("float32"))),
        networks{.running = &bench.network(),
                 .second = second.get(),
                 .running_handles = {},
                 .second_handles = {}} {
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

std::vector<GenerateUpdate> sampled_directly() {
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
  const std::vector<GenerateUpdate> expected = sampled_directly();
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

/// One of twenty weights moves.
Tensor moved(const Tensor& flat_N, int64_t seed) {
  const Tensor moves = (at::arange(flat_N.size(0)) * 7919 + seed * 31) % 20 == 0;
  return at::where(moves, flat_N * 1.3, flat_N);
}

/// What a publisher makes of the next weights of `network`.
Expected<void> publish(sync::Publisher& publisher, RemoteEngine& remote, model::Network& network,
                       WeightVersion version) {
  const at::NoGradGuard no_grad;
  const Tensor before_N = network.weights().flat().clone();
  Tensor(network.weights().flat()).copy_(moved(before_N, version));
  const sync::Publication publication = publisher.prepare(network, version, before_N);
  Expected<void> updated = remote.update_weights(
      {.version = version, .source = publication.source(), .publication = publication.number});
  if (updated) publisher.end(publication);
  return updated;
}

struct PublishingMode {
  std::string name;
  bool sends_changes, is_disk;
  model::DeltaEncoding encoding = model::DeltaEncoding::kXor;
};

class PublishingModes : public ::testing::TestWithParam<PublishingMode> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("slime_publishing_" + GetParam().name + std::to_string(::getpid()));
    network_ =
        model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
    publisher_ = std::make_unique<sync::Publisher>(
        sync::PublisherConfig{.sends_changes = GetParam().sends_changes,
                              .encoding = GetParam().encoding,
                              .folder = GetParam().is_disk ? folder_ : std::filesystem::path()});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// As a worker's engine gets its first weights.
  void take_in(RemoteEngine& remote, WeightVersion version) {
    if (publisher_->number() == 0) publisher_->begin();
    ASSERT_TRUE(remote.update_weights({.version = version,
                                       .source = FromNetwork{network_.get()},
                                       .publication = publisher_->number()}));
  }
  void expect_same_weights(RemoteEngine& remote) {
    const Expected<WeightChecksums> checked = remote.check_weights(WeightCheck::kChecksum);
    ASSERT_TRUE(checked) << checked.error().message;
    EXPECT_EQ(*checked, model::checksums_of(network_->weights()));
  }
  Expected<void> publish(RemoteEngine& remote, WeightVersion version) {
    return engine::publish(*publisher_, remote, *network_, version);
  }

  std::filesystem::path folder_;
  std::unique_ptr<model::Network> network_;
  std::unique_ptr<sync::Publisher> publisher_;
};

TEST_P(PublishingModes, TheWeightsArriveBitForBitWhileRequestsRun) {
  Responses responses;
  ServedEngine served({.weight_piece_bytes = 997});
  take_in(*served.remote, 0);
  for (int version = 1; version <= 4; ++version) {
    GenerateRequest running = sampled_request(some_tokens(12), 120, 7);
    running.rid = "running-" + std::to_string(version);
    served.remote->submit(running, responses.sink());
    responses.wait_for_tokens(running.rid, 3);
    const Expected<void> updated = publish(*served.remote, version);
    ASSERT_TRUE(updated) << updated.error().message;
    EXPECT_EQ(served.remote->weight_version(), version);
    expect_same_weights(*served.remote);
    const auto& transfer = served.remote->last_transfer();
    EXPECT_EQ(transfer.why_whole, "");
    const auto all = static_cast<int64_t>(network_->weights().flat().nbytes());
    if (GetParam().is_disk) {
      EXPECT_EQ(transfer.bytes, 0) << "nothing but the folder's name travels";
      EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "read files are gone";
    } else if (GetParam().sends_changes) {
      EXPECT_LT(transfer.bytes, all / 2);
      EXPECT_GT(transfer.bytes, 0);
    } else {
      EXPECT_EQ(transfer.bytes, all);
    }
    EXPECT_EQ(responses.wait(running.rid).output_ids.size(), 120u);
  }
}

/// An engine that missed an update has other weights than those that changed.
TEST_P(PublishingModes, WhoMissedAnUpdateGetsAllOfTheNext) {
  ServedEngine served, other;
  take_in(*served.remote, 0);
  take_in(*other.remote, 0);
  ASSERT_TRUE(publish(*served.remote, 1));
  ASSERT_TRUE(publish(*served.remote, 2));
  const at::NoGradGuard no_grad;
  const Tensor before_N = network_->weights().flat().clone();
  Tensor(network_->weights().flat()).copy_(moved(before_N, 3));
  const sync::Publication third = publisher_->prepare(*network_, 3, before_N);
  for (ServedEngine* each : {&served, &other}) {
    ASSERT_TRUE(each->remote->update_weights(
        {.version = 3, .source = third.source(), .publication = third.number}));
    expect_same_weights(*each->remote);
  }
  publisher_->end(third);
  EXPECT_EQ(served.remote->last_transfer().why_whole, "");
  if (GetParam().sends_changes) {
    EXPECT_EQ(other.remote->last_transfer().why_whole,
              "the engine: the engine has other weights than those that changed");
  }
  ASSERT_TRUE(publish(*other.remote, 4)) << "from here on it has what changes";
  EXPECT_EQ(other.remote->last_transfer().why_whole, "");
  expect_same_weights(*other.remote);
}

/// Behind a router nobody is served by an engine that missed one, until it has caught up.
TEST_P(PublishingModes, AnEngineThatMissedAnUpdateServesNothingUntilItHasCaughtUp) {
  const SystemClock clock;
  std::atomic<int64_t> second_epoch{0};
  Responses responses;
  ServedEngine first, second({.epoch = [&second_epoch] { return second_epoch.load(); }});
  router::Router router({}, clock);
  take_in(*first.remote, 0);
  take_in(*second.remote, 0);
  const router::EngineId first_id = *router.join(*first.remote);
  const router::EngineId second_id = *router.join(*second.remote);
  const auto is_serving = [&] {
    std::string serving;
    for (const auto& view : router.engines()) serving += view.is_serving ? '1' : '0';
    return serving;
  };
  const auto update = [&](WeightVersion version, bool breaks_second) {
    const at::NoGradGuard no_grad;
    const Tensor before_N = network_->weights().flat().clone();
    Tensor(network_->weights().flat()).copy_(moved(before_N, version));
    const sync::Publication publication = publisher_->prepare(*network_, version, before_N);
    second_epoch = breaks_second ? -1 : 0;  // an epoch before: refused
    const Expected<void> updated = router.update_weights(
        {.version = version, .source = publication.source(), .publication = publication.number});
    publisher_->end(publication);
    return updated;
  };
  EXPECT_EQ(is_serving(), "11");
  ASSERT_TRUE(update(1, false));
  EXPECT_FALSE(update(2, true));
  EXPECT_EQ(is_serving(), "10");
  const auto different = router.check_weights(WeightCheck::kChecksum);
  ASSERT_FALSE(different);
  EXPECT_NE(different.error().message.find("has other weights than number 1: model.embed_tokens"),
            std::string::npos)
      << different.error().message;
  for (int i = 0; i < 6; ++i) {
    GenerateRequest request = sampled_request(some_tokens(9 + i), 10, 4);
    request.rid = "behind-" + std::to_string(i);
    router.submit(request, responses.sink());
    EXPECT_EQ(responses.wait(request.rid).versions, (std::vector<VersionRun>{{2, 10}}));
  }
  ASSERT_TRUE(update(3, false));
  EXPECT_EQ(is_serving(), "11");
  expect_same_weights(*second.remote);
  ASSERT_TRUE(router.check_weights(WeightCheck::kChecksum));
  router.leave(first_id);
  router.leave(second_id);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, PublishingModes,
    ::testing::Values(PublishingMode{"full", false, false}, PublishingMode{"delta", true, false},
                      PublishingMode{"overwrite", true, false, model::DeltaEncoding::kOverwrite},
                      PublishingMode{"disk", false, true},
                      PublishingMode{"delta_disk", true, true}),
    [](const auto& info) { return info.param.name; });

/// A change that was damaged on its way is noticed, and all is sent.
TEST(RemoteEngineParity, WhatDoesNotLeadToTheRightWeightsIsSentWhole) {
  const at::NoGradGuard no_grad;
  ServedEngine served;
  auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  ASSERT_TRUE(served.remote->update_weights(
      {.version = 1, .source = FromNetwork{network.get()}, .publication = 1}));
  const Tensor before_N = network->weights().flat().clone();
  Tensor(network->weights().flat()).copy_(moved(before_N, 1));
  model::WeightDelta delta = model::make_delta(
      network->weights(), before_N, network->weights().flat(), model::DeltaEncoding::kXor);
  delta.base = 1;
  ++delta.tensors[3].checksum;
  ASSERT_TRUE(served.remote->update_weights(
      {.version = 2, .source = FromNetwork{network.get(), &delta}, .publication = 2}));
  EXPECT_NE(served.remote->last_transfer().why_whole.find("has another checksum"),
            std::string::npos);
  EXPECT_EQ(*served.remote->check_weights(WeightCheck::kChecksum),
            model::checksums_of(network->weights()));
}

TEST(RemoteEngineParity, WeightsAreComparedWithASnapshotAndReset) {
  ServedEngine served;
  RemoteEngine& remote = *served.remote;
  ASSERT_FALSE(remote.check_weights(WeightCheck::kCompare)) << "there is no snapshot";
  const auto first = remote.check_weights(WeightCheck::kSnapshot);
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, model::checksums_of(served.bench.network().weights()));
  ASSERT_TRUE(remote.check_weights(WeightCheck::kCompare));
  ASSERT_TRUE(remote.check_weights(WeightCheck::kReset));
  const auto reset = remote.check_weights(WeightCheck::kCompare);
  ASSERT_FALSE(reset);
  EXPECT_NE(reset.error().message.find("differ from the snapshot: model.embed_tokens.weight, "),
            std::string::npos)
      << reset.error().message;
  const auto network =
      model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  ASSERT_TRUE(remote.update_weights({.version = 1, .source = FromNetwork{network.get()}}));
  EXPECT_TRUE(remote.check_weights(WeightCheck::kCompare)) << "they have been brought again";
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
    // On a busy machine a request may end before the pause comes: then another one is tried.
    for (int attempt = 0; attempt < 100; ++attempt) {
      running.rid = fmt::format("running-{}-{}", version, attempt);
      served.remote->submit(running, responses.sink());
      responses.wait_for_tokens(running.rid, 5);
      ASSERT_TRUE(served.remote->pause(PauseMode::kInPlace));
      if (served.remote->load()->num_running > 0) break;  // it has tokens left to sample
      ASSERT_TRUE(served.remote->resume());
    }
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
    const GenerateUpdate sampled = responses.wait(running.rid);
    ASSERT_EQ(sampled.versions.size(), 2U);
    EXPECT_EQ(sampled.versions[0].version, version - 1);
    EXPECT_EQ(sampled.versions[1].version, version);
    EXPECT_EQ(num_tokens(sampled.versions), 240);
  }
}

/// The connection of an engine breaks in the middle, again and again; another one takes its place.
TEST(RemoteEngineParity, EnginesThatAreLostChangeNoToken) {
  const std::vector<GenerateUpdate> expected = sampled_directly();
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
