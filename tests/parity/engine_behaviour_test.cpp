/// What callers of the engine rely on besides numbers: finish reasons, sampling parameters, control
/// calls, versions.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "core/error.h"
#include "engine/paged_kv_cache.h"
#include "engine_fixture.h"

namespace slime {
namespace {

using engine::EngineConfig;
using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using engine::PauseMode;
using testing::greedy_request;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;
using Kind = FinishReason::Kind;

/// Every token is spelled "<id>".
EngineConfig with_spelling() {
  static const std::vector<std::string> kSpelling = [] {
    std::vector<std::string> spelling;
    for (int id = 0; id < 512; ++id) spelling.push_back("<" + std::to_string(id) + ">");
    return spelling;
  }();
  EngineConfig config;
  config.token_bytes = [](TokenId id) { return std::string_view(kSpelling.at(id)); };
  return config;
}

TEST(EngineFinish, StopsAtStopIdsAndKeepsThem) {
  TestEngine bench("qwen3");
  const auto free_run = bench.generate(greedy_request(some_tokens(9), 20));
  auto request = greedy_request(some_tokens(9), 20);
  request.sampling.stop_token_ids = {free_run.output_ids[6]};
  const auto out = bench.generate(request);
  const auto first =
      std::find(free_run.output_ids.begin(), free_run.output_ids.end(), free_run.output_ids[6]);
  EXPECT_EQ(out.output_ids, std::vector<TokenId>(free_run.output_ids.begin(), first + 1));
  EXPECT_EQ(out.finish->kind, Kind::kStop);
  EXPECT_EQ(std::get<TokenId>(out.finish->matched), free_run.output_ids[6]);
}

TEST(EngineFinish, StopStringsMayCrossTokens) {
  TestEngine bench("qwen3", with_spelling());
  const auto free_run = bench.generate(greedy_request(some_tokens(9), 20));
  auto request = greedy_request(some_tokens(9), 20);
  request.sampling.stop = {std::to_string(free_run.output_ids[3]) + "><" +
                           std::to_string(free_run.output_ids[4]) + ">"};
  const auto out = bench.generate(request);
  EXPECT_LE(out.output_ids.size(), 5U);
  EXPECT_EQ(std::get<std::string>(out.finish->matched), request.sampling.stop[0]);
}

/// A response that another call has begun: the whole of it is what one call draws.
TEST(EngineFinish, AResponseGoesOnFromItsTokensAsIfNothingHadHappened) {
  TestEngine bench("qwen3", with_spelling());
  auto request = sampled_request(some_tokens(9), 20, 11);
  request.sampling.frequency_penalty = 0.7;
  request.sampling.presence_penalty = 0.4;
  request.sampling.repetition_penalty = 1.3;
  const auto free_run = bench.generate(request);
  request.sampling.stop = {std::to_string(free_run.output_ids[9]) + "><" +
                           std::to_string(free_run.output_ids[10]) + "><" +
                           std::to_string(free_run.output_ids[11])};
  const auto whole = bench.generate(request);
  ASSERT_EQ(whole.finish->kind, Kind::kStop);
  const auto length = static_cast<std::ptrdiff_t>(whole.output_ids.size());
  for (std::ptrdiff_t seam = 1; seam < length; ++seam) {
    auto rest = request;
    rest.input_ids.insert(rest.input_ids.end(), whole.output_ids.begin(),
                          whole.output_ids.begin() + seam);
    rest.num_sampled = seam;
    rest.sampling.max_new_tokens -= seam;
    const auto out = bench.generate(rest);
    EXPECT_EQ(out.output_ids,
              std::vector<TokenId>(whole.output_ids.begin() + seam, whole.output_ids.end()))
        << seam;
    EXPECT_EQ(out.finish->matched, whole.finish->matched) << seam;
  }
}

TEST(EngineFinish, MinNewTokensForbidsStopIdsBefore) {
  TestEngine bench("qwen3");
  const auto free_run = bench.generate(greedy_request(some_tokens(9), 20));
  auto request = greedy_request(some_tokens(9), 20);
  request.sampling.stop_token_ids = {free_run.output_ids[0]};
  request.sampling.min_new_tokens = 5;
  const auto out = bench.generate(request);
  EXPECT_GE(out.output_ids.size(), 5U);
  for (int i = 0; i < 5; ++i) EXPECT_NE(out.output_ids[i], free_run.output_ids[0]);
}

TEST(EngineFinish, RequestsThatCannotRunSayWhy) {
  TestEngine bench("qwen3");
  const auto expect_400 = [&](const GenerateRequest& request, const std::string& part) {
    const auto out = bench.generate(request);
    EXPECT_EQ(out.finish->kind, Kind::kAbort);
    EXPECT_EQ(out.finish->cause, FinishReason::Cause::kBadRequest);
    EXPECT_NE(out.finish->message.find(part), std::string::npos) << out.finish->message;
  };
  expect_400(greedy_request({}, 5), "input_ids is empty");
  expect_400(greedy_request({1, 5000}, 5), "5000");
  expect_400(greedy_request(some_tokens(256), 5), "context length");
  auto request = greedy_request({1}, 5);
  request.sampling.top_p = 0;
  request.sampling.temperature = -1;
  expect_400(request,
             "temperature must be in [0, 1000000], got -1; top_p must be in (0, 1], got 0");
  request = greedy_request({1}, 5);
  request.sampling.min_new_tokens = 1;
  for (TokenId id = 0; id < 2'000; ++id) request.sampling.stop_token_ids.push_back(id);
  expect_400(request, "no token can be sampled");
  request = greedy_request({1}, 5);
  request.num_sampled = 2;
  expect_400(request, "num_sampled is 2, of 1 input_ids");
  request = greedy_request({1}, 5);
  request.sampling.stop = {"x"};
  expect_400(request, "stop strings need a tokenizer");
}

TEST(EngineFinish, ResponsesEndAtTheContextLength) {
  TestEngine bench("qwen3", {.context_length = 40});
  const auto out = bench.generate(greedy_request(some_tokens(30), 100));
  EXPECT_EQ(out.output_ids.size(), 10U);
  EXPECT_EQ(out.finish->kind, Kind::kLength);
}

TEST(EngineFinish, ARequestLargerThanTheCacheIsRefusedAndASmallerOneRuns) {
  TestEngine probe("qwen3");
  const int64_t page_bytes = engine::PagedKvCache::page_bytes(probe.network().blocks(), at::kFloat);
  TestEngine bench("qwen3", {.kv_cache_bytes = 2 * page_bytes});
  EXPECT_EQ(bench.generate(greedy_request(some_tokens(32), 5)).finish->cause,
            FinishReason::Cause::kBadRequest);
  EXPECT_EQ(bench.generate(greedy_request(some_tokens(20), 100)).output_ids.size(), 12U);
}

TEST(EngineSampling, DrawsFollowTheSoftmax) {
  // First tokens of 3,000 requests with different seeds against the probabilities of the top 20.
  TestEngine bench("qwen3");
  auto probe = greedy_request(some_tokens(12), 1);
  probe.top_logprobs_num = 20;
  const auto top = bench.generate(probe).output_top.at(0);
  constexpr int kDraws = 3000;
  for (int i = 0; i < kDraws; ++i) {
    auto request = sampled_request(some_tokens(12), 1, i);
    request.rid = "d" + std::to_string(i);
    bench.submit(request);
  }
  std::map<TokenId, int> counts;
  for (int i = 0; i < kDraws; ++i)
    ++counts[bench.responses().wait("d" + std::to_string(i)).output_ids.at(0)];
  double chi_square = 0;
  double rest = 1;
  int rest_count = kDraws;
  for (const auto& [log_prob, id] : top) {
    const double expected = kDraws * std::exp(log_prob);
    chi_square += std::pow(counts[id] - expected, 2) / expected;
    rest -= std::exp(log_prob);
    rest_count -= counts[id];
  }
  chi_square += std::pow(rest_count - kDraws * rest, 2) / (kDraws * rest);
  EXPECT_LT(chi_square, 53)
      << "20 degrees of freedom: 1e-4 of right samplers exceed it; the seeds are fixed";
}

TEST(EngineSampling, KeptIdsRenormaliseTheLogProb) {
  TestEngine bench("qwen3");
  auto request = sampled_request(some_tokens(12), 6, 4);
  request.sampling.top_k = 3;
  request.return_top_p_token_ids = true;
  request.top_logprobs_num = 3;
  const auto out = bench.generate(request);
  ASSERT_EQ(out.top_p_counts, std::vector<int64_t>(6, 3));
  for (int t = 0; t < 6; ++t) {
    double kept = 0;
    double of_sampled = 0;
    for (const auto& [log_prob, id] : out.output_top[t]) {
      kept += std::exp(log_prob);
      if (id == out.output_ids[t]) of_sampled = log_prob;
    }
    EXPECT_NEAR(out.output_log_probs[t], of_sampled - std::log(kept), 1e-5);
  }
}

TEST(EngineSampling, LogProbsOfKeptIdsAreThoseThatTheTokenWasDrawnFrom) {
  TestEngine bench("qwen3");
  auto request = sampled_request(some_tokens(12), 6, 4);
  request.sampling.top_p = 0.8;
  request.return_top_p_token_ids = true;
  request.return_top_p_log_probs = true;
  const auto out = bench.generate(request);
  ASSERT_EQ(out.top_p_log_probs.size(), out.top_p_ids.size());
  std::size_t next = 0;
  for (int t = 0; t < 6; ++t) {
    double mass = 0;
    bool is_there = false;
    for (int64_t i = 0; i < out.top_p_counts[t]; ++i, ++next) {
      mass += std::exp(static_cast<double>(out.top_p_log_probs[next]));
      if (out.top_p_ids[next] != out.output_ids[t]) continue;
      is_there = true;
      EXPECT_EQ(out.top_p_log_probs[next], out.output_log_probs[t]);
    }
    EXPECT_TRUE(is_there);
    EXPECT_NEAR(mass, 1, 1e-6);
  }
  request.return_top_p_token_ids = false;
  EXPECT_EQ(bench.generate(request).finish->message,
            "return_top_p_log_probs needs return_top_p_token_ids");
}

TEST(EngineSampling, PenaltiesAndBiasChangeTheDistribution) {
  TestEngine bench("qwen3");
  auto request = greedy_request(some_tokens(9), 20);
  request.sampling.presence_penalty = 2;
  request.sampling.frequency_penalty = 2;
  request.sampling.repetition_penalty = 2;
  const auto out = bench.generate(request);
  const auto plain = bench.generate(greedy_request(some_tokens(9), 20));
  const auto distinct = [](const std::vector<TokenId>& ids) {
    return std::set<TokenId>(ids.begin(), ids.end()).size();
  };
  EXPECT_GT(distinct(out.output_ids), distinct(plain.output_ids));
  request = greedy_request(some_tokens(9), 3);
  request.sampling.logit_bias = {{42, 1e4}};
  EXPECT_EQ(bench.generate(request).output_ids, std::vector<TokenId>(3, 42));
}

TEST(EngineControl, AbortReturnsWhatWasGenerated) {
  TestEngine bench("qwen3");
  auto request = sampled_request(some_tokens(9), 240, 1);
  request.rid = "a";
  const engine::RequestHandle handle = bench.submit(request);
  const auto seen = bench.responses().wait_for_tokens("a", 3);
  bench.engine().abort(handle);
  const auto out = bench.responses().wait("a");
  EXPECT_GE(out.output_ids.size(), seen.output_ids.size());
  if (out.output_ids.size() < 240) {
    EXPECT_EQ(out.finish->kind, Kind::kAbort);
  }
  bench.engine().abort(handle);
  bench.engine().abort_prefix("nobody");
  EXPECT_EQ(bench.generate(greedy_request({1, 2}, 2)).output_ids.size(), 2U);
}

TEST(EngineControl, AbortByHandleEndsARequestThatWasNotReadYetAndNoOtherOfItsRid) {
  TestEngine bench("qwen3");
  std::promise<void> is_inside, may_go_on;
  std::jthread holder([&] {
    bench.engine().run_exclusive([&] {
      is_inside.set_value();
      may_go_on.get_future().wait();
    });
  });
  is_inside.get_future().wait();  // the engine's thread reads nothing now
  auto request = greedy_request(some_tokens(9), 20);
  request.rid = "r";
  request.sampling.ignore_eos = true;
  bench.submit(request);
  std::promise<GenerateUpdate> refused, ended;
  const engine::RequestHandle same_rid = bench.engine().submit(request, [&](GenerateUpdate update) {
    if (update.finish) refused.set_value(std::move(update));
  });
  bench.engine().abort(same_rid);
  request.rid = "s";
  const engine::RequestHandle unread = bench.engine().submit(request, [&](GenerateUpdate update) {
    if (update.finish) ended.set_value(std::move(update));
  });
  bench.engine().abort(unread);
  may_go_on.set_value();
  EXPECT_EQ(refused.get_future().get().finish->cause, FinishReason::Cause::kBadRequest);
  const GenerateUpdate aborted = ended.get_future().get();
  EXPECT_EQ(aborted.finish->cause, FinishReason::Cause::kRequested);
  EXPECT_TRUE(aborted.output_ids.empty());
  const GenerateUpdate whole = bench.responses().wait("r");
  EXPECT_EQ(whole.finish->kind, Kind::kLength) << "it is not the one that was aborted";
  EXPECT_EQ(whole.output_ids.size(), 20U);
}

TEST(EngineControl, AbortAllEndsWaitingRequestsToo) {
  TestEngine bench("qwen3", {.max_running_requests = 1});
  bench.engine().pause(PauseMode::kInPlace);
  for (const char* rid : {"a", "b"}) {
    auto request = greedy_request(some_tokens(9), 200);
    request.rid = rid;
    bench.submit(request);
  }
  bench.engine().abort_all();
  for (const char* rid : {"a", "b"})
    EXPECT_EQ(bench.responses().wait(rid).finish->kind, Kind::kAbort);
  bench.engine().resume();
}

TEST(EngineControl, ASilentRequestGetsOneUpdate) {
  TestEngine bench("qwen3");
  int updates = 0;
  std::promise<void> done;
  auto request = greedy_request(some_tokens(9), 20);
  request.stream_interval = 0;
  bench.engine().submit(request, [&](GenerateUpdate update) {
    ++updates;
    EXPECT_EQ(update.output_ids.size(), 20U);
    if (update.finish) done.set_value();
  });
  done.get_future().wait();
  EXPECT_EQ(updates, 1);
}

class EnginePause : public ::testing::TestWithParam<PauseMode> {};

TEST_P(EnginePause, ResumedRequestsContinueAsIfNothingHappened) {
  TestEngine bench("qwen3");
  const auto undisturbed = bench.generate(sampled_request(some_tokens(20), 100, 3));
  bench.engine().flush_cache();
  auto request = sampled_request(some_tokens(20), 100, 3);
  request.rid = "p";
  bench.submit(request);
  bench.responses().wait_for_tokens("p", 5);
  bench.engine().pause(GetParam());
  const int64_t steps = bench.engine().load()->steps_done;
  EXPECT_TRUE(bench.engine().load()->is_paused);
  bench.engine().run_exclusive([] {});
  EXPECT_EQ(bench.engine().load()->steps_done, steps);
  bench.engine().resume();
  EXPECT_EQ(bench.responses().wait("p").output_ids, undisturbed.output_ids);
}

TEST_P(EnginePause, NewWeightsServeTheRestAndVersionsSaySo) {
  TestEngine bench("qwen3");
  auto request = sampled_request(some_tokens(20), 100, 3);
  request.rid = "p";
  bench.submit(request);
  bench.responses().wait_for_tokens("p", 5);
  bench.engine().pause(GetParam());
  const auto before = bench.responses().wait_for_tokens("p", 5);
  {
    const at::NoGradGuard no_grad;
    Tensor flat = bench.network().weights().flat();
    flat.mul_(1.05);
  }
  bench.engine().update_weights({.version = 7});
  bench.engine().resume();
  const auto out = bench.responses().wait("p");
  if (before.output_ids.size() == 100) GTEST_SKIP() << "finished before the pause";
  const auto old_tokens = static_cast<int64_t>(before.output_ids.size());
  EXPECT_EQ(out.versions, (std::vector<VersionRun>{{0, old_tokens}, {7, 100 - old_tokens}}));
  // The rest is what the new weights say about everything before: no old key or value is left.
  auto prefix = some_tokens(20);
  prefix.insert(prefix.end(), out.output_ids.begin(), out.output_ids.begin() + old_tokens);
  bench.engine().flush_cache();
  const auto fresh = bench.generate(sampled_request(prefix, 100 - old_tokens, 3));
  EXPECT_EQ(std::vector<TokenId>(out.output_ids.begin() + old_tokens, out.output_ids.end()),
            fresh.output_ids);
  EXPECT_EQ(bench.engine().weight_version(), 7);
}

INSTANTIATE_TEST_SUITE_P(Modes, EnginePause,
                         ::testing::Values(PauseMode::kRetract, PauseMode::kInPlace),
                         [](const auto& info) {
                           return info.param == PauseMode::kRetract ? "Retract" : "InPlace";
                         });

TEST(EngineControl, SleepInTheMiddleLosesNoTokenAndKeepsNoKeys) {
  TestEngine bench("qwen3");
  const auto undisturbed = bench.generate(sampled_request(some_tokens(20), 100, 3));
  bench.engine().flush_cache();
  auto request = sampled_request(some_tokens(20), 100, 3);
  request.rid = "s";
  bench.submit(request);
  bench.responses().wait_for_tokens("s", 5);
  bench.engine().sleep();
  EXPECT_TRUE(bench.engine().load()->is_paused);
  EXPECT_EQ(bench.engine().load()->num_kv_tokens_used, 0);
  const int64_t steps = bench.engine().load()->steps_done;
  bench.engine().resume();  // pausing and sleeping are two things
  bench.engine().run_exclusive([] {});
  EXPECT_EQ(bench.engine().load()->steps_done, steps);
  bench.engine().wake();
  EXPECT_EQ(bench.responses().wait("s").output_ids, undisturbed.output_ids);
}

TEST(EngineControl, PauseByAbortEndsEverythingAndNewRequestsWait) {
  TestEngine bench("qwen3");
  auto request = sampled_request(some_tokens(20), 230, 3);
  request.rid = "p";
  bench.submit(request);
  bench.responses().wait_for_tokens("p", 2);
  bench.engine().pause(PauseMode::kAbort);
  EXPECT_TRUE(bench.responses().wait("p").finish.has_value());
  request = greedy_request(some_tokens(5), 4);
  request.rid = "q";
  bench.submit(request);
  bench.engine().run_exclusive([] {});
  EXPECT_EQ(bench.engine().load()->num_waiting, 1);
  bench.engine().resume();
  EXPECT_EQ(bench.responses().wait("q").output_ids.size(), 4U);
}

TEST(EngineControl, WeightsFromDiskReplaceThoseInMemoryOrNothing) {
  TestEngine bench("qwen3");
  const auto before = bench.generate(greedy_request(some_tokens(9), 10));
  const auto update_from = [&](const std::filesystem::path& directory, WeightVersion version) {
    return bench.engine().update_weights(
        {.version = version, .source = engine::FromDirectory{directory}});
  };
  const auto wrong = update_from(golden_models::directory("qwen2"), 3);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("running model"), std::string::npos)
      << wrong.error().message;
  EXPECT_FALSE(update_from("/nowhere", 3).has_value());
  EXPECT_EQ(bench.engine().weight_version(), 0);
  {
    const at::NoGradGuard no_grad;
    Tensor flat = bench.network().weights().flat();
    flat.zero_();
  }
  bench.engine().update_weights({.version = 1});
  ASSERT_TRUE(update_from(golden_models::directory("qwen3"), 5).has_value());
  EXPECT_EQ(bench.engine().weight_version(), 5);
  EXPECT_EQ(bench.generate(greedy_request(some_tokens(9), 10)).output_ids, before.output_ids);
}

TEST(EngineControl, WeightsFromDiskOfAnotherComputationAreRefusedWithTheFieldsThatDiffer) {
  TestEngine bench("qwen3");
  const auto before = bench.generate(greedy_request(some_tokens(9), 10));
  const auto original = golden_models::directory("qwen3");
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "another_computation";
  const auto refusal = [&](const std::function<void(json::object&)>& change) {
    std::filesystem::remove_all(folder);
    std::filesystem::copy(original, folder, std::filesystem::copy_options::recursive);
    json::object config = read_json_file(folder / "config.json").as_object();
    change(config);
    std::ofstream(folder / "config.json") << json::serialize(config);
    const auto updated =
        bench.engine().update_weights({.version = 3, .source = engine::FromDirectory{folder}});
    return updated ? std::string() : updated.error().message;
  };
  const std::string told = refusal([](json::object& config) {
    config["rope_theta"] = 12345.0;
    if (config.contains("rope_parameters"))
      config["rope_parameters"].as_object()["rope_theta"] = 12345.0;
    config["rms_norm_eps"] = 0.5;
  });
  EXPECT_NE(told.find("rope_theta 12345 (here "), std::string::npos) << told;
  EXPECT_NE(told.find("rms_norm_eps 0.5 (here "), std::string::npos) << told;
  EXPECT_EQ(told.find("head"), std::string::npos) << told;
  EXPECT_EQ(bench.engine().weight_version(), 0);
  EXPECT_EQ(bench.generate(greedy_request(some_tokens(9), 10)).output_ids, before.output_ids);
  // What says how a model is stored or where it ends is no other computation.
  EXPECT_EQ(refusal([](json::object& config) {
              config["eos_token_id"] = 7;
              config["initializer_range"] = 0.5;
              config["transformers_version"] = "9";
            }),
            "");
  EXPECT_EQ(bench.engine().weight_version(), 3);
  std::filesystem::remove_all(folder);
}

TEST(EngineControl, DivergedWeightsFailRequestsAndNotTheEngine) {
  TestEngine bench("qwen3");
  const Tensor saved = bench.network().weights().flat().clone();
  bench.engine().run_exclusive([&] { Tensor(bench.network().weights().flat()).fill_(NAN); });
  const auto out = bench.generate(greedy_request(some_tokens(9), 10));
  EXPECT_EQ(out.finish->cause, FinishReason::Cause::kEngineFailed);
  EXPECT_NE(out.finish->message.find("diverged"), std::string::npos);
  bench.engine().run_exclusive([&] { Tensor(bench.network().weights().flat()).copy_(saved); });
  bench.engine().update_weights({.version = 1});
  EXPECT_EQ(bench.generate(greedy_request(some_tokens(9), 10)).output_ids.size(), 10U);
}

TEST(EngineControl, DestructionEndsWhatIsLeft) {
  testing::Responses responses;
  {
    TestEngine bench("qwen3");
    auto request = sampled_request(some_tokens(9), 240, 1);
    request.rid = "left";
    bench.engine().pause(PauseMode::kInPlace);
    bench.engine().submit(request, responses.sink());
  }
  EXPECT_EQ(responses.wait("left").finish->cause, FinishReason::Cause::kShuttingDown);
}

TEST(EngineControl, ControlCallsFromCallbacksAreCarriedOutAfterTheStep) {
  TestEngine bench("qwen3");
  std::promise<GenerateUpdate> done;
  auto request = sampled_request(some_tokens(9), 240, 1);
  request.rid = "self";
  bench.engine().submit(request, [&](GenerateUpdate update) {
    if (update.finish) {
      done.set_value(std::move(update));
    } else {
      bench.engine().abort_prefix("self");
    }
  });
  EXPECT_EQ(done.get_future().get().finish->kind, Kind::kAbort);
}

TEST(EngineConfigTest, ContradictionsAreReportedTogether) {
  try {
    TestEngine bench(
        "qwen3", {.max_running_requests = 0, .kv_cache_dtype = "int8", .context_length = 100000});
    FAIL();
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("max_running_requests"), std::string::npos);
    EXPECT_NE(what.find("int8"), std::string::npos);
    EXPECT_NE(what.find("100000"), std::string::npos);
  }
}

TEST(EngineConfigTest, AnFp8CacheOnTheCpuIsRefusedWithWhatWorks) {
  try {
    TestEngine bench("qwen3", {.kv_cache_dtype = "fp8_e4m3"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "kv_cache_dtype = fp8_e4m3: needs a GPU; the CPU reads float32 and bfloat16");
  }
}

}  // namespace
}  // namespace slime
