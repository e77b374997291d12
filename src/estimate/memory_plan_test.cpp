#include "estimate/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::estimate {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;

/// 8 + 16 + 48 GiB of weights, gradients and optimizer; 40 of activations.
MemoryNeeds four_billion() {
  MemoryNeeds needs;
  needs.train.weights = 8 * kGibibyte;
  needs.train.gradients = 16 * kGibibyte;
  needs.train.optimizer = 48 * kGibibyte;
  needs.train.activations = 40 * kGibibyte;
  needs.micro_batch_tokens = 16384;
  needs.kv_page_bytes = 16 * 144 * 1024;
  needs.longest_request = 2048;
  needs.engine_workspace = kGibibyte;
  return needs;
}

kernels::GpuMemoryUse gpu(int64_t total, int64_t kept) {
  kernels::GpuMemoryUse use;
  use.total = total * kGibibyte;
  use.kept = kept * kGibibyte;
  use.free = use.total - use.kept - kGibibyte;  // one of them is CUDA's
  return use;
}

config::RunConfig run_of(int64_t running) {
  config::RunConfig config;
  config.sglang_max_running_requests = running;
  return config;
}

/// Weights and optimizer, 56 GiB, are there already.
MemoryPlan on_cpu(const config::RunConfig& config, const HostMemory& now) {
  return {config, four_billion(), now, 56 * kGibibyte};
}

TEST(MemoryPlan, TheCacheHoldsAFullBatchAndTakesTurnsWithTheTrainer) {
  const MemoryPlan plan(run_of(256), four_billion(), gpu(140, 72));
  // 129 pages of 16 tokens for each of 256 requests: 72.6 GiB beside 8 + 48 + 1 + 1.
  EXPECT_EQ(plan.kv_cache_bytes(), int64_t{129} * 256 * 16 * 144 * 1024);
  EXPECT_TRUE(plan.offloads());
  EXPECT_EQ(plan.train_bytes(), 114 * kGibibyte);
  EXPECT_EQ(plan.rollout_bytes(), 58 * kGibibyte + plan.kv_cache_bytes());
}

TEST(MemoryPlan, ARanksPlanIsTheSameInTheController) {
  const MemoryPlan plan(run_of(256), four_billion(), gpu(140, 72));
  const MemoryPlan told = MemoryPlan::from_json(plan.to_json());
  EXPECT_EQ(told.lines(), plan.lines());
  EXPECT_EQ(told.kv_cache_bytes(), plan.kv_cache_bytes());
  EXPECT_TRUE(told.offloads());
  EXPECT_EQ(told.explain(Phase::kTrain, "asked for 2 GiB"),
            plan.explain(Phase::kTrain, "asked for 2 GiB"));
  EXPECT_THROW(MemoryPlan::from_json({{"total", 80}}), ConfigError);
}

TEST(MemoryPlan, LogitsAreKeptForTheBackwardInWhatNobodyElseTakes) {
  MemoryNeeds needs = four_billion();
  needs.train.logits = 4 * kGibibyte;
  needs.train.all_logits = 10 * kGibibyte;
  EXPECT_EQ(MemoryPlan(run_of(256), needs, gpu(140, 72)).train_bytes(), 128 * kGibibyte);
  // Three GiB stay free.
  EXPECT_EQ(MemoryPlan(run_of(256), needs, gpu(125, 72)).train_bytes(), 122 * kGibibyte);
  EXPECT_EQ(MemoryPlan(run_of(256), needs, gpu(120, 72)).train_bytes(), 118 * kGibibyte);
}

TEST(MemoryPlan, RoomBeyondAStepsRequestsIsNotTakenWhereItWouldComeAndGo) {
  MemoryNeeds needs = four_billion();
  needs.step_requests =
      64;  // 18.1 GiB; the trainer's peak, the engine's step and the rest leave 23.5
  const MemoryPlan plan(run_of(256), needs, gpu(140, 72));
  EXPECT_FALSE(plan.offloads());
  EXPECT_GE(plan.kv_cache_bytes(), int64_t{129} * 64 * 16 * 144 * 1024);
  EXPECT_LE(plan.train_bytes(), 140 * kGibibyte);
  needs.step_requests = 128;  // 36.3 GiB
  EXPECT_TRUE(MemoryPlan(run_of(256), needs, gpu(140, 72)).offloads());
  needs.step_requests = 64;
  config::RunConfig asked = run_of(256);
  asked.offload_rollout = true;
  EXPECT_TRUE(MemoryPlan(asked, needs, gpu(140, 72)).offloads());
}

TEST(MemoryPlan, FunctionsInPythonTakeTheirPartOfTheGpuThroughout) {
  MemoryNeeds needs = four_billion();
  needs.functions = 2 * kGibibyte;
  const MemoryPlan plan(run_of(256), needs, gpu(140, 72)),
      without(run_of(256), four_billion(), gpu(140, 72));
  EXPECT_EQ(plan.train_bytes(), without.train_bytes() + 2 * kGibibyte);
  EXPECT_EQ(plan.rollout_bytes() - plan.kv_cache_bytes(),
            without.rollout_bytes() - without.kv_cache_bytes() + 2 * kGibibyte);
  EXPECT_THAT(plan.lines(),
              ::testing::Contains(::testing::HasSubstr("Python of the trainer's functions")));
}

/// The engine serves the other runs while one of several trains.
TEST(MemoryPlan, KeysAndValuesOfSeveralRunsStayAndLeaveRoomForTheOthersAdapters) {
  config::RunConfig config = run_of(256);
  config.adapter_name = "a";
  MemoryNeeds needs = four_billion();
  const MemoryPlan one(config, needs, gpu(140, 72));
  EXPECT_FALSE(one.offloads());
  EXPECT_LE(one.train_bytes(), 140 * kGibibyte);
  needs.other_adapters = 2 * kGibibyte;
  const MemoryPlan two(config, needs, gpu(140, 72));
  EXPECT_EQ(two.kv_cache_bytes(), one.kv_cache_bytes() - 2 * kGibibyte);
  EXPECT_EQ(two.train_bytes(), one.train_bytes());
}

TEST(MemoryPlan, WhatIsGivenBackNeedsRoomAndIsNoUse) {
  MemoryNeeds needs = four_billion();
  const MemoryPlan without(run_of(256), needs, gpu(140, 72));
  needs.engine_transient = kGibibyte;
  EXPECT_EQ(MemoryPlan(run_of(256), needs, gpu(140, 72)).rollout_bytes(), without.rollout_bytes());
  // 80.5 GiB are left for keys and values, a batch wants 72.6.
  needs.engine_transient = 20 * kGibibyte;
  EXPECT_NEAR(static_cast<double>(MemoryPlan(run_of(256), needs, gpu(140, 72)).kv_cache_bytes()),
              60.5 * kGibibyte, 1);
}

TEST(MemoryPlan, WorkspacesOfProductsStay) {
  MemoryNeeds needs = four_billion();
  needs.library_workspaces = kGibibyte;
  EXPECT_EQ(MemoryPlan(run_of(256), needs, gpu(140, 72)).train_bytes(), 115 * kGibibyte);
}

TEST(MemoryPlan, ASmallRunIsToldInMebibytes) {
  MemoryNeeds needs;
  needs.has_engine = false;
  needs.train.weights = 3 << 18;  // 0.75 MiB
  const HostMemory now{.total = 16 * kGibibyte, .resident = 100 << 20};
  const MemoryPlan plan(run_of(8), needs, now, 0);
  EXPECT_THAT(plan.lines().front(), testing::StartsWith("memory of this process, MiB"));
  EXPECT_THAT(plan.lines().at(1), testing::EndsWith("0.8         0.8"));
  EXPECT_THAT(plan.compare({.bytes = 110 << 20}, {.bytes = 111 << 20}),
              testing::HasSubstr("measured: 110.0 MiB while generating ("));
  EXPECT_THAT(MemoryPlan(run_of(256), four_billion(), gpu(140, 72))
                  .compare({.bytes = kGibibyte, .elsewhere = 1, .mapped = 2, .kept = 3},
                           {.bytes = 60 * kGibibyte,
                            .elsewhere = kGibibyte,
                            .mapped = 0,
                            .kept = 59 * kGibibyte,
                            .tensors = 58 * kGibibyte}),
              testing::EndsWith("at most 1.00 in CUDA and its libraries, 0.00 in pages of the KV "
                                "cache, 59.00 in the caching allocator, of which tensors 58.00"));
}

TEST(MemoryPlan, WhereWindowsGivePagesBackALongRequestNeedsAFewPages) {
  MemoryNeeds needs = four_billion();
  config::RunConfig config = run_of(1);
  config.kv_cache_gb = 0.05;  // 23 pages of 16 tokens; the request has 129
  EXPECT_THROW(MemoryPlan(config, needs, gpu(140, 72)), ConfigError);
  needs.most_held = 300;
  EXPECT_EQ(needs.least_pages(), 19 + 1);
  EXPECT_GT(MemoryPlan(config, needs, gpu(140, 72)).kv_cache_bytes(), 0);
}

TEST(MemoryPlan, WhereEverythingFitsNothingIsGivenBack) {
  const MemoryPlan plan(run_of(8), four_billion(), gpu(140, 72));
  EXPECT_FALSE(plan.offloads());
  EXPECT_EQ(plan.train_bytes(), 114 * kGibibyte + plan.kv_cache_bytes());
  config::RunConfig forced = run_of(8);
  forced.offload_rollout = true;
  EXPECT_TRUE(MemoryPlan(forced, four_billion(), gpu(140, 72)).offloads());
}

TEST(MemoryPlan, AnEngineBesideTheTrainerHasItsWeightsTwiceAndAllOfItAtOnce) {
  config::RunConfig config = run_of(256);
  config.train_async = true;
  MemoryNeeds needs = four_billion();
  needs.engine_weights = needs.staged_weights = 8 * kGibibyte;
  const MemoryPlan plan(config, needs, gpu(140, 72));
  EXPECT_FALSE(plan.offloads()) << "it generates while the weights are trained";
  // 8 + 48 + 1 of CUDA + 1 of steps + 1.5, 16 + 40 for training, 8 and 8 for the engine's weights.
  EXPECT_NEAR(static_cast<double>(plan.kv_cache_bytes()) / kGibibyte, 140 - 131.5, 1e-6);
  EXPECT_LE(plan.train_bytes(), 140 * kGibibyte);
  EXPECT_THAT(plan.lines(),
              testing::Contains(testing::AllOf(testing::HasSubstr("their second buffer"),
                                               testing::HasSubstr("8.00        8.00"))));
}

TEST(MemoryPlan, AnEvaluationBesideTakesWeightsAndAPartOfTheCache) {
  config::RunConfig config = run_of(256);
  config.train_async = true;
  MemoryNeeds needs = four_billion();
  needs.engine_weights = 8 * kGibibyte;
  const int64_t before = MemoryPlan(config, needs, gpu(140, 72)).kv_cache_bytes();
  needs.eval_weights = 4 * kGibibyte;
  needs.eval_requests = 64;
  const MemoryPlan plan(config, needs, gpu(140, 72));
  // An eighth of the 12.5 GiB that are left, less than 64 of the longest requests would fill.
  EXPECT_EQ(plan.eval_cache_bytes(), (before - 4 * kGibibyte) / 8);
  EXPECT_EQ(plan.kv_cache_bytes(), before - 4 * kGibibyte - plan.eval_cache_bytes());
  EXPECT_THAT(plan.lines(), testing::Contains(testing::HasSubstr("an evaluation's engine")));
  EXPECT_LE(plan.train_bytes(), 140 * kGibibyte);
}

/// 8 GiB of weights and as much for their second buffer; nothing is trained there.
MemoryNeeds engine_alone() {
  MemoryNeeds needs = four_billion();
  needs.train = {};
  needs.engine_weights = needs.staged_weights = 8 * kGibibyte;
  return needs;
}

TEST(MemoryPlan, AnEngineOnADeviceOfItsOwnFillsThatDevice) {
  config::RunConfig config = run_of(2048);
  config.num_engine_workers = 1;
  const MemoryPlan plan(config, engine_alone(), gpu(80, 16));
  // 80 less 1 of CUDA, 1 of steps, 1.5, 8 and 8.
  EXPECT_NEAR(static_cast<double>(plan.kv_cache_bytes()) / kGibibyte, 60.5, 1e-6);
  EXPECT_FALSE(plan.offloads());
  config.sglang_mem_fraction_static = 0.5;
  EXPECT_EQ(MemoryPlan(config, engine_alone(), gpu(80, 16)).kv_cache_bytes(), 32 * kGibibyte);
}

TEST(MemoryPlan, PublishedWeightsAreOnTheTrainersDeviceWhereItHasRoom) {
  config::RunConfig config = run_of(256);
  config.num_engine_workers = 1;
  MemoryNeeds needs = four_billion();
  needs.has_engine = false;
  needs.engine_workspace = 0;
  needs.published_weights = 8 * kGibibyte;
  const MemoryPlan large(config, needs, gpu(140, 72));
  EXPECT_FALSE(large.publishes_on_host());
  EXPECT_EQ(large.kv_cache_bytes(), 0) << "keys and values are on the engine's device";
  // 1 of CUDA, 8 + 16 + 48 + 40 of training, 8 published.
  EXPECT_EQ(large.train_bytes(), 121 * kGibibyte);
  EXPECT_THAT(large.lines(), testing::Contains(testing::HasSubstr("the published weights")));
  const MemoryPlan small(config, needs, gpu(122, 72));
  EXPECT_TRUE(small.publishes_on_host()) << "a margin of 1.5 is missing";
  EXPECT_EQ(small.train_bytes(), 113 * kGibibyte);
  EXPECT_THAT(small.lines(), testing::Contains(testing::HasSubstr("in the host's memory")));
}

TEST(MemoryPlan, AShareOfTheGpuCountsTheWeights) {
  config::RunConfig config = run_of(256);
  config.sglang_mem_fraction_static = 0.3;
  const MemoryPlan plan(config, four_billion(), gpu(140, 72));
  EXPECT_NEAR(static_cast<double>(plan.kv_cache_bytes()) / kGibibyte, 34, 1e-6);  // 0.3 x 140 - 8
}

TEST(MemoryPlan, ACacheThatDoesNotFitIsAnErrorWithTheNumberThatWould) {
  config::RunConfig config = run_of(256);
  config.kv_cache_gb = 90;
  try {
    MemoryPlan(config, four_billion(), gpu(140, 72));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--kv-cache-gb 90: 80.50 of"));
  }
}

TEST(MemoryPlan, OutOfMemoryNamesTheBiggestHoldersAndTheFlagsThatHelp) {
  const MemoryPlan plan(run_of(256), four_billion(), gpu(140, 72));
  const std::string text =
      plan.explain(Phase::kTrain, "CUDA out of memory. Tried to allocate 2 GiB. GPU 0");
  EXPECT_THAT(text, testing::HasSubstr("held by master weights and moments (48.00), activations of "
                                       "16384 tokens (40.00), gradients (16.00), weights (8.00)"));
  EXPECT_THAT(text, testing::HasSubstr("--recompute-granularity full"));
  EXPECT_THAT(text, testing::HasSubstr("Tried to allocate 2 GiB"));
}

TEST(MemoryPlan, AMeasuredPeakIsSplitIntoWhatIsKnownAndTheRest) {
  const MemoryPlan plan(run_of(256), four_billion(), gpu(140, 72));
  using Holders = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(
      plan.holders(Phase::kTrain, 110 * kGibibyte),
      (Holders{
          {"master weights and moments", 48}, {"gradients", 16}, {"weights", 8}, {"other", 38}}));
  EXPECT_EQ(plan.holders(Phase::kTrain, kGibibyte), Holders()) << "nothing is known";
}

TEST(MemoryPlan, OnTheCpuTheCacheCountsAsFarAsAStepFillsIt) {
  config::RunConfig config = run_of(256);
  config.rollout_batch_size = 2;
  config.n_samples_per_prompt = 4;
  const HostMemory now{.total = 256 * kGibibyte, .resident = 57 * kGibibyte};
  // 129 pages for each of 8 samples; the default of 2 GiB is less.
  EXPECT_EQ(on_cpu(config, now).rollout_bytes(), (57 + 16 + 2 + 1) * kGibibyte);
  config.kv_cache_gb = 40;
  EXPECT_EQ(on_cpu(config, now).rollout_bytes(),
            (57 + 16 + 1) * kGibibyte + int64_t{129} * 8 * 16 * 144 * 1024);
  EXPECT_EQ(on_cpu(config, now).kv_cache_bytes(), 40 * kGibibyte);
  EXPECT_FALSE(on_cpu(config, now).offloads());
  EXPECT_THAT(on_cpu(config, now).lines().back(), testing::HasSubstr("not counted"));
}

TEST(MemoryPlan, StatesOfRequestsAreAPartOfTheCacheAndARowOfTheTable) {
  MemoryNeeds needs = four_billion();
  needs.state_bytes = kGibibyte / 64;
  config::RunConfig config = run_of(8);
  config.kv_cache_gb = 1;
  config.rollout_batch_size = 4;
  config.n_samples_per_prompt = 4;
  const MemoryPlan plan(config, needs, {.total = 256 * kGibibyte, .resident = 57 * kGibibyte},
                        56 * kGibibyte);
  // Twice the 8 running requests' states take a quarter of a GiB; pages fill the rest.
  const auto row = [&](const char* name) {
    for (const std::string& line : plan.lines()) {
      if (line.find(name) != std::string::npos) return line;
    }
    return std::string();
  };
  EXPECT_THAT(row("states of requests"), testing::HasSubstr("0.25        0.25"));
  EXPECT_THAT(row("keys and values"), testing::HasSubstr("0.75        0.75"));
}

TEST(MemoryPlan, ChoicesOfExpertsLieBesideThePagesThatAStepFillsAndStay) {
  MemoryNeeds needs = four_billion();
  needs.expert_page_bytes = needs.kv_page_bytes / 8;
  config::RunConfig config = run_of(8);
  config.kv_cache_gb = 1;
  config.offload_rollout = true;
  config.rollout_batch_size = 4;
  config.n_samples_per_prompt = 4;
  const HostMemory now{.total = 256 * kGibibyte, .resident = 57 * kGibibyte};
  const MemoryPlan plan(config, needs, now, 56 * kGibibyte);
  EXPECT_THAT(plan.lines(),
              testing::Contains(testing::AllOf(testing::HasSubstr("choices of experts"),
                                               testing::EndsWith("0.12        0.12"))));
  EXPECT_THAT(MemoryPlan(config, four_billion(), now, 56 * kGibibyte).lines(),
              testing::Not(testing::Contains(testing::HasSubstr("choices of experts"))));
}

TEST(MemoryPlan, OnTheCpuNoFlagOfAGpuIsAdvised) {
  const MemoryPlan plan =
      on_cpu(run_of(256), {.total = 64 * kGibibyte, .resident = 57 * kGibibyte});
  const std::string text =
      plan.explain(Phase::kTrain, "DefaultCPUAllocator: can't allocate memory");
  EXPECT_THAT(text, testing::StartsWith("this machine's memory ran out while training: 64.00 GiB"));
  EXPECT_THAT(text, testing::HasSubstr("--max-tokens-per-gpu"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("--optimizer-cpu-offload")));
}

}  // namespace
}  // namespace slime::estimate
