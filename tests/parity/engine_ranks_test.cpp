// Engines of several ranks (tensor parallelism): their tokens are those of one rank, float32, whatever
// happens on the way.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/version_runs.h"
#include "engine/paged_kv_cache.h"
#include "engine/remote/engine_server.h"
#include "engine/remote/remote_engine.h"
#include "engine_rank_cases.h"
#include "engine_rank_threads.h"
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

class EngineRanksOnGoldenModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineRanksOnGoldenModel, TwoRanksDrawTheTokensOfOne) {
  TestEngine one(GetParam());
  const auto requests = workload(one.network().config().vocab_size);
  ParallelEngine two(slices_of(GetParam()), 2, {.max_prefill_tokens = 20});
  const auto got = two.generate(requests);
  expect_same(got, expected_of(one, requests), testing::log_prob_tolerance(GetParam()));
  int64_t cached = 0;
  for (const GenerateUpdate& update : got) cached += update.cached_tokens;
  EXPECT_GT(cached, 0) << "the group shares its prompt";
}

INSTANTIATE_TEST_SUITE_P(Models, EngineRanksOnGoldenModel,
                         ::testing::ValuesIn(golden_models::all(golden_models::divides_by_two)),
                         golden_models::name_of);

bool divides_by_four(const model::ModelConfig& config) {
  return config.num_heads % 4 == 0 &&
         !golden_models::has_delta_nets(config);  // those have two key heads
}

class EngineOfFourRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineOfFourRanks, DrawsTheTokensOfOne) {
  const FourHeads model(GetParam());
  TestEngine one(model.slices()(comm::Mesh::single()), {});
  const auto requests = workload(317, 12);
  ParallelEngine four(model.slices(), 4, {.max_prefill_tokens = 40});
  expect_same(four.generate(requests), expected_of(one, requests));
}

INSTANTIATE_TEST_SUITE_P(Models, EngineOfFourRanks,
                         ::testing::ValuesIn(golden_models::kinds(divides_by_four)),
                         golden_models::name_of);

TEST(EngineRanks, ChoicesOfExpertsAreThoseOfOneRank) {
  const EngineConfig config{.max_prefill_tokens = 20, .records_experts = true};
  TestEngine one("qwen3_moe", config);
  auto requests = workload(one.network().config().vocab_size);
  for (GenerateRequest& request : requests) request.return_routed_experts = true;
  ParallelEngine two(slices_of("qwen3_moe"), 2, config);
  const auto got = two.generate(requests), expected = expected_of(one, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_FALSE(got[i].routed_experts.empty());
    EXPECT_EQ(got[i].routed_experts, expected[i].routed_experts) << requests[i].rid;
  }
}

bool has_output_layer(const model::ModelConfig& config) { return !config.ties_embeddings; }

class ChecksumsOfRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(ChecksumsOfRanks, AreThoseOfTheWholeModel) {
  TestEngine one(GetParam());
  ParallelEngine two(slices_of(GetParam()), 2);
  const auto whole = one.engine().check_weights(WeightCheck::kChecksum);
  ASSERT_TRUE(whole);
  ASSERT_FALSE(two.engine().check_weights(WeightCheck::kCompare)) << "there is no snapshot";
  const auto snapshot = two.engine().check_weights(WeightCheck::kSnapshot);
  ASSERT_TRUE(snapshot) << snapshot.error().message;
  EXPECT_EQ(*snapshot, *whole);
  const auto reset = two.engine().check_weights(WeightCheck::kReset);
  ASSERT_TRUE(reset);
  EXPECT_EQ(differing_tensors(*whole, *reset).size(), whole->size());
  ASSERT_FALSE(two.engine().check_weights(WeightCheck::kCompare));
  ASSERT_TRUE(two.engine().update_weights(
      {.version = 1, .source = FromDirectory{golden_models::directory(GetParam())}}));
  ASSERT_TRUE(two.engine().check_weights(WeightCheck::kCompare));
  std::vector<std::string> names;
  // A norm that every rank has whole, and a matrix of which each has slices, on one of them.
  ASSERT_TRUE(two.engine().run_exclusive([&] {
    const at::NoGradGuard no_grad;
    const model::Weights& own = two.network().weights();
    for (const model::NamedWeight& weight : own.tensors()) {
      if (!weight.name.ends_with("model.norm.weight") && weight.name != "lm_head.weight") continue;
      model::Weights::view(own.flat(), weight).flatten()[0] += 1;
      names.push_back(weight.name);
    }
    std::ranges::sort(names);
  }));
  const auto changed = two.engine().check_weights(WeightCheck::kChecksum);
  ASSERT_TRUE(changed);
  EXPECT_EQ(names.size(), 2U);
  EXPECT_EQ(differing_tensors(*whole, *changed), names);
}

INSTANTIATE_TEST_SUITE_P(Models, ChecksumsOfRanks,
                         ::testing::ValuesIn(golden_models::kinds(golden_models::divides_by_two,
                                                                  has_output_layer)),
                         golden_models::name_of);

TEST(EngineRanks, PagesAreTakenAwayAndGivenBackOnAllRanks) {
  TestEngine one("qwen3");
  const auto requests = workload(one.network().config().vocab_size);
  const int64_t page_bytes = PagedKvCache::page_bytes(one.network().blocks(), at::kFloat) / 2;
  ParallelEngine two(slices_of("qwen3"), 2, {.kv_cache_bytes = 20 * page_bytes});
  const auto got = two.generate(requests);
  int64_t retractions = 0;
  for (const GenerateUpdate& update : got) retractions += update.num_retractions;
  EXPECT_GT(retractions, 0);
  expect_same(got, expected_of(one, requests));
  ASSERT_TRUE(two.engine().sleep());
  ASSERT_TRUE(two.engine().wake());
  GenerateRequest again = requests[0];
  again.rid = "again";
  EXPECT_EQ(two.generate(again).output_ids, got[0].output_ids);
}

TEST(EngineRanks, APauseAnAbortAndAStopStringChangeNoOtherToken) {
  const EngineConfig config{.token_bytes = [](TokenId id) { return std::to_string(id) + " "; }};
  TestEngine one("qwen3", config);
  ParallelEngine two(slices_of("qwen3"), 2, config);
  GenerateRequest kept = sampled_request(some_tokens(30), 120, 5);
  kept.rid = "kept";
  GenerateRequest stops = greedy_request(some_tokens(9), 40);
  stops.rid = "stops";
  const GenerateUpdate plain = one.generate(stops);
  stops.sampling.stop = {std::to_string(plain.output_ids[20]) + " "};
  stops.rid = "stops at a string";
  GenerateRequest dropped = sampled_request(some_tokens(30), 120, 6);
  dropped.rid = "dropped";
  two.submit_and_pause(dropped, 3, PauseMode::kInPlace);
  two.submit_pausing(kept, 10, PauseMode::kRetract);
  ASSERT_TRUE(two.engine().resume());
  two.responses().wait_for_tokens("kept", 10);
  ASSERT_TRUE(two.engine().abort_prefix("dropped"));
  ASSERT_TRUE(two.engine().resume());
  expect_same({two.responses().wait("kept"), two.generate(stops)},
              {one.generate(kept), one.generate(stops)});
  EXPECT_EQ(two.responses().wait("dropped").finish->kind, FinishReason::Kind::kAbort);
}

/// Weights over a connection, as a run sends them: whole, in pieces that end anywhere.
class WeightsOfRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(WeightsOfRanks, AreTheirSlicesOfThoseThatAreSentAndTheNextTokensAreTheirs) {
  const at::NoGradGuard no_grad;
  TestEngine other(GetParam());
  const Tensor first = other.network().weights().flat().clone();
  ParallelEngine two(slices_of(GetParam()), 2);
  const int64_t vocabulary = std::min<int64_t>(300, two.network().config().vocab_size);
  const auto second = model::make_blank_network(two.network().config(),
                                                model::Precision::of("float32"), two.mesh());
  TwoNetworks networks{.running = &two.network(),
                       .second = second.get(),
                       .running_handles = {},
                       .second_handles = {}};
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  RemoteEngine remote(ends[0], {.weight_piece_bytes = 10'007});
  EngineServer server(two.engine(), ends[1], networks,
                      {.pass_weights_on = [&](std::string_view piece) {
                        two.followers().tell(RankOrder::kWeights, piece);
                      }});
  const std::jthread thread([&] { server.serve(); });
  Responses responses;
  for (int version = 1; version <= 2; ++version) {
    GenerateRequest running = sampled_request(some_tokens(12, 3, vocabulary), 60, 7);
    running.rid = "running-" + std::to_string(version);
    two.submit_and_pause(running, 5, PauseMode::kInPlace);
    Tensor flat = other.network().weights().flat();
    flat.copy_(first * (1 + 0.05 * version));
    ASSERT_TRUE(remote.update_weights({.version = version,
                                       .source = FromNetwork{&other.network()},
                                       .running = RunningRequests::kKeep}));
    ASSERT_TRUE(remote.resume());
    // Two ranks add in another order than one. With this seed no sample lies so near a boundary.
    GenerateRequest probe = sampled_request(some_tokens(40, 3, vocabulary), 20, 5);
    probe.rid = "probe-" + std::to_string(version);
    remote.submit(probe, responses.sink());
    const GenerateUpdate out = responses.wait(probe.rid);
    EXPECT_EQ(out.versions, (std::vector<VersionRun>{{version, 20}}));
    ASSERT_TRUE(other.engine().update_weights({.version = version}));
    probe.rid = "cold-" + std::to_string(version);
    EXPECT_EQ(out.output_ids, other.generate(probe).output_ids);
    EXPECT_EQ(two.responses().wait(running.rid).versions,
              (std::vector<VersionRun>{{version - 1, 5}, {version, 55}}));
  }
  remote.disconnect("the test is over");
}

TEST_P(WeightsOfRanks, AreTheirSlicesOfACheckpoint) {
  const at::NoGradGuard no_grad;
  ParallelEngine two(slices_of(GetParam()), 2);
  const int64_t vocabulary = std::min<int64_t>(300, two.network().config().vocab_size);
  GenerateRequest request = sampled_request(some_tokens(40, 3, vocabulary), 20, 4);
  request.rid = "as loaded";
  const GenerateUpdate loaded = two.generate(request);
  // Nobody's copy may be what is sampled from behind the update.
  ASSERT_TRUE(two.engine().run_exclusive([&] { two.network().weights().flat().zero_(); }));
  ASSERT_FALSE(two.engine().update_weights(
      {.version = 5, .source = FromDirectory{golden_models::directory("llama")}}));
  ASSERT_TRUE(two.engine().update_weights(
      {.version = 5, .source = FromDirectory{golden_models::directory(GetParam())}}));
  request.rid = "read again";
  const GenerateUpdate again = two.generate(request);
  EXPECT_EQ(again.output_ids, loaded.output_ids);
  EXPECT_EQ(again.versions, (std::vector<VersionRun>{{5, 20}}));
}

INSTANTIATE_TEST_SUITE_P(Models, WeightsOfRanks,
                         ::testing::ValuesIn(golden_models::kinds(golden_models::divides_by_two)),
                         golden_models::name_of);

TEST(EngineRanks, AnEngineThatLosesARankIsLost) {
  ParallelEngine two(slices_of("qwen3"), 2);
  GenerateRequest request = sampled_request(some_tokens(30), 150, 5);
  request.rid = "running";
  two.submit_and_pause(request, 3, PauseMode::kInPlace);
  two.cut_off(1);
  ASSERT_TRUE(two.engine().resume());
  const GenerateUpdate lost = two.responses().wait("running");
  EXPECT_EQ(lost.finish->cause, FinishReason::Cause::kEngineLost);
  EXPECT_EQ(lost.output_ids.size(), 3U);
  request.rid = "later";
  EXPECT_EQ(two.generate(request).finish->cause, FinishReason::Cause::kEngineLost);
}

/// What a follower is told, and `delay` late that it gives memory back.
void pass_on(int from, int to, std::chrono::milliseconds delay, std::atomic<bool>& has_released) {
  net::FrameChannel in(from), out(to);
  while (const auto frame = in.receive()) {
    if (static_cast<RankOrder>(frame->type) == RankOrder::kRelease) {
      std::this_thread::sleep_for(delay);
      has_released = true;
    }
    if (!out.send(frame->type, frame->payload, std::chrono::seconds(10))) return;
  }
}

TEST(EngineRanks, MemoryIsGivenBackOnAllRanksBeforeTheFirstGoesOn) {
  std::array<int, 2> first{}, second{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, first.data()), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, second.data()), 0);
  std::atomic<bool> has_released = false;
  const std::jthread relay(
      [&] { pass_on(first[1], second[0], std::chrono::milliseconds(200), has_released); });
  parity::on_mesh(comm::engine_layout(2), [&](const comm::Mesh& mesh) {
    auto slices = slices_of("qwen3")(mesh);
    if (mesh.rank() == 1)
      return FollowingRank(second[1], mesh, model::Precision::of("float32"), *slices).follow();
    Followers followers({first[0]});
    const StepRunnerConfig config{
        .num_pages = 8, .max_running_requests = 1, .max_prefill_tokens = 16, .context_length = 64};
    LeadingRunner runner(make_step_runner(*slices, config), followers, mesh.tp(), config);
    runner.release_memory();
    EXPECT_TRUE(has_released);
  });
}

}  // namespace
}  // namespace slime::engine
