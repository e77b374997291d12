// Adapters on engines of several ranks: their tokens are those of one rank, float32, also where a batch mixes them
// and where they are replaced while requests run.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "core/version_runs.h"
#include "core/xxhash64.h"
#include "engine/ranks/rank_adapters.h"
#include "engine/remote/engine_server.h"
#include "engine/remote/remote_engine.h"
#include "engine_rank_cases.h"
#include "engine_rank_threads.h"
#include "model/adapter_files.h"
#include "model/adapters.h"
#include "net/frame_channel.h"
#include "rank_threads.h"

namespace slime::engine {
namespace {

using testing::expect_same;
using testing::expected_of;
using testing::FourHeads;
using testing::greedy_request;
using testing::MakeSlices;
using testing::ParallelEngine;
using testing::Responses;
using testing::sampled_request;
using testing::slices_of;
using testing::some_tokens;
using testing::TestEngine;
using testing::workload;

std::string adapter_folder(const std::string& name) {
  return (std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/lora" / name).string();
}

/// "MODEL/ADAPTER" of tests/fixtures/lora: one that all rows take.
MakeSlices slices_with(const std::string& name) {
  const std::string model = name.substr(0, name.find('/'));
  return [make = slices_of(model), name](const comm::Mesh& mesh) {
    auto network = make(mesh);
    model::load_adapters(*network, adapter_folder(name), mesh);
    return network;
  };
}

/// Pairs beside all linear layers, whose numbers are functions of their names.
void add_pairs(model::Network& network, const comm::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  model::AdapterConfig config;
  config.rank = 4;
  config.alpha = 4;
  config.targets = {"all-linear"};
  model::add_adapters(network, model::form_of(config, network.config()), mesh);
  const model::Weights& weights = network.trained();
  for (const model::NamedWeight& weight : weights.tensors()) {
    const at::Generator generator = at::detail::createCPUGenerator(xxhash64(weight.name));
    const Tensor whole = at::empty(weight.full_shape, at::kFloat).uniform_(-0.2, 0.2, generator);
    model::Weights::view(weights.flat(), weight).copy_(weight.slices.of(whole));
  }
}

class EngineRanksWithAdapter : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineRanksWithAdapter, TwoRanksDrawTheTokensOfOne) {
  TestEngine one(slices_with(GetParam())(comm::Mesh::single()), {});
  const auto requests = workload(one.network().config().vocab_size, 12);
  ParallelEngine two(slices_with(GetParam()), 2, {.max_prefill_tokens = 20});
  expect_same(two.generate(requests), expected_of(one, requests));
}

INSTANTIATE_TEST_SUITE_P(Adapters, EngineRanksWithAdapter,
                         ::testing::Values("qwen3/all_linear_rslora", "qwen3_moe/experts_each",
                                           "qwen3_moe/experts_fused", "qwen3_moe/head",
                                           "deepseek_v3/all_linear", "gemma3_text/all_linear",
                                           "gpt_oss/experts_fused", "llama/tied_embedding",
                                           "llama/saved_norm", "phi3/fused"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST(EngineRanksWithAdapters, FourRanksDrawTheTokensOfOne) {
  for (const char* kind : {"qwen3", "qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(kind);
    const FourHeads model(kind);
    const MakeSlices make = [base = model.slices()](const comm::Mesh& mesh) {
      auto network = base(mesh);
      add_pairs(*network, mesh);
      return network;
    };
    TestEngine one(make(comm::Mesh::single()), {});
    const auto requests = workload(317, 12);
    ParallelEngine four(make, 4, {.max_prefill_tokens = 40});
    expect_same(four.generate(requests), expected_of(one, requests));
  }
}

/// An engine of one rank whose requests may name adapters.
struct ServingEngine {
  explicit ServingEngine(const std::string& model, int64_t most)
      : network(slices_of(model)(comm::Mesh::single())),
        adapters(*network, most),
        engine(*network, {.kv_cache_bytes = 8 << 20, .adapters = &adapters}, clock) {
    adapters.change_with(engine);
  }
  std::vector<GenerateUpdate> generate(const std::vector<GenerateRequest>& requests) {
    for (const auto& request : requests) engine.submit(request, responses.sink());
    std::vector<GenerateUpdate> out;
    for (const auto& request : requests) out.push_back(responses.wait(request.rid));
    return out;
  }

  SystemClock clock;
  std::unique_ptr<model::Network> network;
  ServedAdapters adapters;
  Responses responses;
  Engine engine;
};

/// Loads it into both.
void load(ServingEngine& one, ParallelEngine& several, const std::string& name,
          const std::string& folder) {
  for (ServedAdapters* adapters : {&one.adapters, &several.adapters()}) {
    const auto loaded =
        adapters->load(name, adapter_folder(folder), /*is_pinned=*/false, /*replaces=*/true);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
}

TEST(EngineRanksWithAdapters, RowsOfABatchTakeTheOnesThatTheirRequestsName) {
  ServingEngine one("qwen3", 3);
  ParallelEngine two(slices_of("qwen3"), 2, {.max_prefill_tokens = 20}, /*served=*/3);
  load(one, two, "first", "qwen3/qv_r8");
  load(one, two, "second", "qwen3/all_linear_rslora");
  auto requests = workload(one.network->config().vocab_size);
  const std::array<std::string, 3> names{"first", "", "second"};
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].adapter = names[i % names.size()];
  const auto mixed = two.generate(requests);
  expect_same(mixed, one.generate(requests));
  // A slot that is free again is taken, on all ranks.
  ASSERT_TRUE(one.adapters.unload("first"));
  ASSERT_TRUE(two.adapters().unload("first"));
  for (const char* folder : {"qwen3/patterns", "qwen3/some_layers", "qwen3/qv_r8"})
    load(one, two, "third", folder);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].rid += " again";
    if (requests[i].adapter == "first") requests[i].adapter = "third";
  }
  const auto again = two.generate(requests);
  expect_same(again, one.generate(requests));
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(again[i].output_ids, mixed[i].output_ids) << "the same numbers in another slot";
}

TEST(EngineRanksWithAdapters, ARequestKeepsTheVersionThatItBeganWith) {
  ServingEngine one("qwen3", 2);
  ParallelEngine two(slices_of("qwen3"), 2, {}, /*served=*/2);
  load(one, two, "moving", "qwen3/qv_r8");
  GenerateRequest running = greedy_request(some_tokens(30), 40);
  running.rid = "running";
  running.adapter = "moving";
  const auto expected = one.generate({running});
  two.submit_and_pause(running, 5, PauseMode::kInPlace);
  load(one, two, "moving", "qwen3/all_linear_rslora");
  GenerateRequest later = greedy_request(some_tokens(30), 40);
  later.rid = "later";
  later.adapter = "moving";
  two.submit(later);
  ASSERT_TRUE(two.engine().resume());
  expect_same({two.responses().wait("running")}, expected);
  const auto of_later = one.generate({later});
  expect_same({two.responses().wait("later")}, of_later);
  EXPECT_NE(of_later[0].output_ids, expected[0].output_ids);
  // Weights that would come without them are refused before a rank changes anything.
  const auto refused = two.engine().update_weights(
      {.version = 1, .source = FromDirectory{golden_models::directory("qwen3")}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("beside weights that stay"), std::string::npos);
  later.rid = "last";
  EXPECT_EQ(two.generate(later).output_ids, of_later[0].output_ids);
}

/// Passes frames on until their sender is gone; kReadAdapter as one of a directory that is not there while `misleads`.
void relay_frames(int from, int to, const std::atomic<bool>& misleads) {
  net::FrameChannel in(from), out(::dup(to));
  while (const auto frame = in.receive()) {
    const bool is_read = frame->type == static_cast<uint32_t>(RankOrder::kReadAdapter);
    const std::string payload = is_read && misleads ? "/there is none" : frame->payload;
    if (!out.send(frame->type, payload, std::chrono::seconds(10))) break;
  }
  ::shutdown(to, SHUT_WR);
  ::close(to);
}

TEST(EngineRanksWithAdapters, AnErrorOnOneRankRefusesTheAdapterOnAll) {
  std::array<int, 2> first{}, second{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, first.data()), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, second.data()), 0);
  std::atomic<bool> misleads = true;
  // Each has ends of its own.
  const std::jthread there(
      [&, from = ::dup(first[1]), to = ::dup(second[0])] { relay_frames(from, to, misleads); });
  const std::jthread back([&] { relay_frames(second[0], first[1], misleads); });
  parity::on_mesh(comm::engine_layout(2), [&](const comm::Mesh& mesh) {
    const at::NoGradGuard no_grad;
    auto slices = slices_of("qwen3")(mesh);
    if (mesh.rank() == 1)
      return FollowingRank(second[1], mesh, model::Precision::of("float32"), *slices).follow();
    Followers followers({first[0]});
    ServedAdapters adapters(*slices, 2, mesh, &followers);
    const auto load = [&] {
      return adapters.load("a", adapter_folder("qwen3/qv_r8"), /*is_pinned=*/false,
                           /*replaces=*/false);
    };
    const auto refused = load();
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.starts_with("rank 1 of the engine: "))
        << refused.error().message;
    EXPECT_EQ(adapters.find("a"), nullptr);
    for (int64_t slot = 0; slot < slices->adapters()->num_slots(); ++slot)
      EXPECT_EQ(slices->adapters()->at(slot), nullptr);
    misleads = false;
    const auto loaded = load();
    ASSERT_TRUE(loaded) << loaded.error().message;
  });
}

/// The adapter of a trainer, whole, in pieces that end anywhere; the weights stay.
TEST(EngineRanksWithAdapters, APublishedOneIsSlicedOnEachRank) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"qwen3/all_linear_rslora", "qwen3_moe/experts_fused"}) {
    SCOPED_TRACE(name);
    const MakeSlices make = slices_with(name);
    TestEngine trained(make(comm::Mesh::single()), {});
    Tensor flat_N = trained.network().trained().flat();
    const Tensor first_N = flat_N.clone();
    ParallelEngine two(make, 2);
    const auto second =
        model::with_another_adapter(two.network(), model::Precision::of("float32"), two.mesh());
    TwoNetworks networks{.running = &two.network(),
                         .second = second.get(),
                         .running_handles = {},
                         .second_handles = {}};
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    RemoteEngine remote(ends[0], {.weight_piece_bytes = 1'007});
    EngineServer server(two.engine(), ends[1], networks,
                        {.pass_weights_on = [&](std::string_view piece) {
                          two.followers().tell(RankOrder::kWeights, piece);
                        }});
    const std::jthread thread([&] { server.serve(); });
    for (int version = 1; version <= 3; ++version) {
      flat_N.copy_(first_N * (1 - 0.4 * version));
      ASSERT_TRUE(
          remote.update_weights({.version = version, .source = FromNetwork{&trained.network()}}));
      ASSERT_TRUE(trained.engine().update_weights({.version = version}));
      GenerateRequest probe = sampled_request(some_tokens(40), 20, 5);
      probe.rid = "probe-" + std::to_string(version);
      const GenerateUpdate got = two.generate(probe);
      EXPECT_EQ(got.versions, (std::vector<VersionRun>{{version, 20}}));
      expect_same({got}, {trained.generate(probe)});
    }
    const auto whole = trained.engine().check_weights(WeightCheck::kChecksum);
    const auto of_ranks = two.engine().check_weights(WeightCheck::kChecksum);
    ASSERT_TRUE(whole && of_ranks);
    EXPECT_EQ(*of_ranks, *whole);
    remote.disconnect("the test is over");
  }
}

TEST(EngineRanksWithAdapters, OneForAllRowsIsReadByEachRank) {
  const std::string name = "qwen3/patterns";
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  parity::on_mesh(comm::engine_layout(2), [&](const comm::Mesh& mesh) {
    const at::NoGradGuard no_grad;
    auto slices = slices_of("qwen3")(mesh);
    if (mesh.rank() == 1) {
      FollowingRank(ends[1], mesh, model::Precision::of("float32"), *slices).follow();
      const auto expected = slices_with(name)(mesh);
      ASSERT_NE(slices->adapters(), nullptr);
      EXPECT_TRUE(slices->trained().flat().equal(expected->trained().flat()));
      return;
    }
    Followers followers({ends[0]});
    load_adapter_on_ranks(*slices, adapter_folder(name), mesh, &followers);
    EXPECT_NE(slices->adapters(), nullptr);
  });
}

}  // namespace
}  // namespace slime::engine
