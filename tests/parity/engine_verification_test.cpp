/// Responses of an engine that verifies what fast steps drew: those of one whose steps are all exact, to the bit,
/// however wrong the fast steps are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "draft_cases.h"
#include "perturbed_runner.h"
#include "rope_switch_fixture.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using engine::RunningRequests;
using testing::answers_to;
using testing::expect_equal;
using testing::greedy_request;
using testing::Perturbation;
using testing::PerturbedRunner;
using testing::requests_of_all_forms;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

/// Every token is spelled "<id>".
EngineConfig verifying(int64_t tokens) {
  static const std::vector<std::string> kSpelling = [] {
    std::vector<std::string> spelling;
    for (int id = 0; id < 4096; ++id) spelling.push_back("<" + std::to_string(id) + ">");
    return spelling;
  }();
  EngineConfig config;
  config.token_bytes = [](TokenId id) { return std::string_view(kSpelling.at(id)); };
  config.verify_tokens = tokens;
  return config;
}

std::unique_ptr<model::Network> network_of(const std::string& model,
                                           const std::string& dtype = "float32") {
  return model::load_network(golden_models::directory(model), model::Precision::of(dtype));
}

engine::MakeStepRunner perturbed(Perturbation& perturbation) {
  return [&](model::Network& network, const engine::StepRunnerConfig& config) {
    return std::make_unique<PerturbedRunner>(network, config, perturbation);
  };
}

/// All sampling forms, and ends of all kinds.
std::vector<GenerateRequest> verified_requests(int64_t vocab_size) {
  std::vector<GenerateRequest> requests = requests_of_all_forms(vocab_size);
  for (uint64_t i = 0; i < 6; ++i) {
    GenerateRequest request = sampled_request(some_tokens(12), 40, 300 + i);
    request.sampling.stop = {"7><", "12><1"};
    request.sampling.min_new_tokens = i % 2 == 0 ? 0 : 9;
    request.stream_interval = static_cast<int64_t>(i % 3);
    requests.push_back(std::move(request));
  }
  for (const int64_t length : {0, 1, 2, 3})
    requests.push_back(greedy_request(some_tokens(7 + length), length));
  requests.push_back(sampled_request(some_tokens(1), 20, 400));  // a prompt of one token
  return requests;
}

/// What the engine counted once no step runs.
DraftCounts counts_of(TestEngine& bench) {
  bench.engine().run_exclusive([] {});
  return bench.engine().load()->drafts;
}

void expect_counted(TestEngine& bench, const Perturbation& perturbation) {
  const DraftCounts counts = counts_of(bench);
  EXPECT_EQ(counts.num_compared, perturbation.num_compared);
  EXPECT_EQ(counts.num_redrawn, perturbation.num_redrawn);
  EXPECT_EQ(counts.num_kept, counts.num_compared - counts.num_redrawn);
}

class EngineVerificationOfModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineVerificationOfModel, ResponsesAreThoseOfExactStepsAlone) {
  TestEngine plain(GetParam(), verifying(0));
  const auto requests = verified_requests(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  EXPECT_EQ(counts_of(plain), DraftCounts{});
  for (const int64_t tokens : {1, 8, 16, 32}) {
    for (const double share : {0.0, 0.15}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens, share " + std::to_string(share));
      Perturbation perturbation{.share = share};
      TestEngine bench(network_of(GetParam()), verifying(tokens), perturbed(perturbation));
      const auto got = answers_to(requests, bench);
      DraftCounts told;
      for (std::size_t i = 0; i < got.size(); ++i) {
        expect_equal(got[i], wanted[i]);
        told += got[i].drafts;
      }
      expect_counted(bench, perturbation);
      EXPECT_EQ(told, counts_of(bench));
      EXPECT_NEAR(told.redrawn_share(), share, share / 2);
      EXPECT_GT(told.num_compared, 300);
      if (share == 0) {
        EXPECT_EQ(told.num_kept, told.num_drafted);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, EngineVerificationOfModel,
                         ::testing::Values("qwen3", "gemma3_text", "gpt_oss", "qwen3_moe",
                                           "deepseek_v3", "glm4_moe", "minimax_m2"),
                         [](const auto& info) { return info.param; });

TEST(EngineVerification, ResponsesOfABfloat16ModelAreThoseOfExactSteps) {
  TestEngine plain("qwen3", verifying(0), "bfloat16");
  const auto requests = verified_requests(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  Perturbation perturbation{.share = 0.1};
  TestEngine bench(network_of("qwen3", "bfloat16"), verifying(8), perturbed(perturbation));
  const auto got = answers_to(requests, bench);
  for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
  expect_counted(bench, perturbation);
}

/// What the tests above would say of an engine whose tentative tokens are the response.
TEST(EngineVerification, ATokenThatNobodyVerifiedIsFound) {
  TestEngine plain("qwen3", verifying(0));
  const auto requests = verified_requests(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  Perturbation perturbation{.share = 0.15, .trusts_drafts = true};
  TestEngine bench(network_of("qwen3"), verifying(8), perturbed(perturbation));
  const auto got = answers_to(requests, bench);
  int64_t num_different = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    num_different += got[i].output_ids != wanted[i].output_ids ? 1 : 0;
  EXPECT_GT(num_different, static_cast<int64_t>(got.size()) / 2);
}

TEST(EngineVerification, RequestsThatAreRetractedLoseTentativeTokensAlone) {
  EngineConfig config = verifying(0);
  config.kv_cache_bytes = 96 << 10;
  TestEngine plain("qwen3", config);
  const auto requests = verified_requests(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  for (const int64_t tokens : {1, 8, 32}) {
    config.verify_tokens = tokens;
    Perturbation perturbation{.share = 0.15};
    TestEngine bench(network_of("qwen3"), config, perturbed(perturbation));
    const auto got = answers_to(requests, bench);
    int64_t num_retractions = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      expect_equal(got[i], wanted[i]);
      num_retractions += got[i].num_retractions;
    }
    EXPECT_GT(num_retractions, 0);
    expect_counted(bench, perturbation);
  }
}

TEST(EngineVerification, RowsThatAStepHasNoRoomForWait) {
  TestEngine plain("qwen3", verifying(0));
  const auto requests = verified_requests(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  for (const int64_t beside : {0, 3}) {
    EngineConfig config = verifying(16);
    config.max_prefill_tokens = 20;
    config.prefill_beside_decode = beside;
    config.max_running_requests = 12;
    Perturbation perturbation{.share = 0.15};
    TestEngine bench(network_of("qwen3"), config, perturbed(perturbation));
    const auto got = answers_to(requests, bench);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], wanted[i]);
    expect_counted(bench, perturbation);
  }
}

TEST(EngineVerification, WhatARequestLeavesInThePrefixTreeIsVerified) {
  TestEngine plain("qwen3", verifying(0));
  Perturbation perturbation{.share = 0.1};
  TestEngine bench(network_of("qwen3"), verifying(16), perturbed(perturbation));
  for (int i = 0; i < 12; ++i) {
    GenerateRequest request =
        sampled_request(some_tokens(20 + 3 * i), 120, static_cast<uint64_t>(i));
    const GenerateUpdate wanted = plain.generate(request);
    request.rid = "aborted-" + std::to_string(i);
    request.stream_interval = 1;
    const auto handle = bench.submit(request);
    bench.responses().wait_for_tokens(request.rid, static_cast<std::size_t>(5 + 4 * i));
    engine::or_throw(bench.engine().abort(handle));
    const GenerateUpdate begun = bench.responses().wait(request.rid);
    const std::size_t count = begun.output_ids.size();
    ASSERT_LE(count, wanted.output_ids.size());
    EXPECT_TRUE(std::ranges::equal(begun.output_ids, std::span(wanted.output_ids).first(count)));
    EXPECT_TRUE(std::ranges::equal(begun.output_log_probs,
                                   std::span(wanted.output_log_probs).first(count)));
    if (count == wanted.output_ids.size()) continue;
    // It goes on from what is cached, as a partial rollout does.
    const auto length = static_cast<int64_t>(request.input_ids.size());
    request.rid = "resumed-" + std::to_string(i);
    request.input_ids.insert(request.input_ids.end(), begun.output_ids.begin(),
                             begun.output_ids.end());
    request.num_sampled = static_cast<int64_t>(count);
    request.sampling.max_new_tokens -= static_cast<int64_t>(count);
    bench.submit(request);
    const GenerateUpdate rest = bench.responses().wait(request.rid);
    EXPECT_TRUE(std::ranges::equal(rest.output_ids, std::span(wanted.output_ids).subspan(count)));
    EXPECT_TRUE(std::ranges::equal(rest.output_log_probs,
                                   std::span(wanted.output_log_probs).subspan(count)));
    EXPECT_EQ(rest.cached_tokens, length + static_cast<int64_t>(count) - 1);
  }
}

TEST(EngineVerification, PausesAndUpdatesOfTheWeightsUnderLoadChangeNothing) {
  TestEngine plain("qwen3", verifying(0));
  const auto requests = verified_requests(plain.network().config().vocab_size);
  const auto wanted = answers_to(requests, plain);
  Perturbation perturbation{.share = 0.1};
  TestEngine bench(network_of("qwen3"), verifying(8), perturbed(perturbation));
  const auto same = network_of("qwen3");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    GenerateRequest request = requests[i];
    request.rid = "busy-" + std::to_string(i);
    bench.submit(std::move(request));
  }
  const int64_t steps = bench.engine().load()->steps_done;
  for (WeightVersion version = 1; version <= 40; ++version) {
    while (bench.engine().load()->steps_done < steps + version * 2 &&
           bench.engine().load()->num_running + bench.engine().load()->num_waiting > 0)
      std::this_thread::yield();
    if (version % 4 == 0) {
      engine::or_throw(bench.engine().pause(version % 8 == 0 ? engine::PauseMode::kRetract
                                                             : engine::PauseMode::kInPlace));
      engine::or_throw(bench.engine().resume());
    }
    constexpr auto kHow = std::to_array(
        {RunningRequests::kKeep, RunningRequests::kRecompute, RunningRequests::kDrop});
    engine::or_throw(bench.engine().update_weights({.version = version,
                                                    .source = engine::FromNetwork{same.get()},
                                                    .running = kHow[version % kHow.size()]}));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const GenerateUpdate got = bench.responses().wait("busy-" + std::to_string(i));
    expect_equal(got, wanted[i]);
    int64_t num_labelled = 0;
    for (const VersionRun& run : got.versions) num_labelled += run.num_tokens;
    EXPECT_EQ(num_labelled, std::ssize(got.output_ids));
  }
  expect_counted(bench, perturbation);
}

/// The next id is even where the last one was odd, and odd where it was even.
class OtherParity final : public engine::TokenConstraint {
 public:
  void accept(TokenId token) override { last_ = token; }
  Allowed allow(std::span<uint32_t> words) override {
    for (uint32_t& word : words) word = last_ % 2 == 0 ? 0xAAAAAAAAU : 0x55555555U;
    return Allowed::kSome;
  }

 private:
  TokenId last_ = 0;
};

class OtherParitySource final : public engine::ConstraintSource {
 public:
  bool constrains(const GenerateRequest& request) const override {
    return request.rid.starts_with("parity");
  }
  void make(const GenerateRequest&, Made made) override { made(std::make_unique<OtherParity>()); }
};

TEST(EngineVerification, ConstrainedRequestsAreComputedTokenByTokenBesideOthers) {
  EngineConfig config = verifying(0);
  config.constraints = std::make_shared<OtherParitySource>();
  TestEngine plain("qwen3", config);
  config.verify_tokens = 8;
  Perturbation perturbation{.share = 0.1};
  TestEngine bench(network_of("qwen3"), config, perturbed(perturbation));
  std::vector<GenerateRequest> requests;
  // Few enough not to make each step one in training arithmetic.
  for (int i = 0; i < 20; ++i) {
    requests.push_back(sampled_request(some_tokens(9 + i), 30, static_cast<uint64_t>(i)));
    requests.back().rid = (i % 7 == 3 ? "parity-" : "free-") + std::to_string(i);
  }
  for (const GenerateRequest& request : requests) {
    plain.submit(request);
    bench.submit(request);
  }
  for (const GenerateRequest& request : requests) {
    const GenerateUpdate wanted = plain.responses().wait(request.rid);
    const GenerateUpdate got = bench.responses().wait(request.rid);
    expect_equal(got, wanted);
    EXPECT_EQ(got.num_constrained, wanted.num_constrained);
    EXPECT_EQ(got.drafts.num_drafted > 0, request.rid.starts_with("free"));
  }
}

class EngineVerificationBeyondRopeSwitch : public testing::RopeSwitch {};

TEST_F(EngineVerificationBeyondRopeSwitch, SequencesAreComputedAnew) {
  TestEngine plain(network(), {});
  Perturbation perturbation{.share = 0.1};
  TestEngine bench(network(), verifying(16), perturbed(perturbation));
  for (const std::size_t length : {60, 90, 95, 96, 97}) {
    const GenerateRequest request = greedy_request(ids(length), 30);
    const GenerateUpdate wanted = plain.generate(request), got = bench.generate(request);
    EXPECT_EQ(got.output_ids, wanted.output_ids) << length;
    EXPECT_EQ(got.output_log_probs, wanted.output_log_probs) << length;
  }
  expect_counted(bench, perturbation);
}

TEST(EngineVerification, RequestsForChoicesOfExpertsAreRefusedWithTheReason) {
  for (const auto& [tokens, says] :
       {std::pair{8, "an engine that verifies its tokens (--rollout-verify-tokens)"},
        std::pair{0, "slime serve --enable-return-routed-experts"}}) {
    TestEngine bench("qwen3_moe", verifying(tokens));
    GenerateRequest request = greedy_request(some_tokens(9), 5);
    request.return_routed_experts = true;
    const GenerateUpdate got = bench.generate(request);
    EXPECT_EQ(got.finish->cause, engine::FinishReason::Cause::kBadRequest);
    EXPECT_THAT(got.finish->message, ::testing::HasSubstr(says));
  }
}

void expect_refused(const std::string& model, const EngineConfig& config, const std::string& why) {
  EXPECT_THAT([&] { TestEngine bench(model, config); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(why)));
}

TEST(EngineVerification, IsRefusedWhereItCannotBeRight) {
  expect_refused("qwen3_next", verifying(8), "layers that keep states");
  expect_refused("qwen3", verifying(512), "less than max_prefill_tokens");
  EngineConfig config = verifying(8);
  config.drafts = {.most = 3};
  expect_refused("qwen3", config, "drafts of other sources");
  config = verifying(8);
  config.records_experts = true;
  expect_refused("qwen3_moe", config, "choices of experts are not recorded");
}

}  // namespace
}  // namespace slime
