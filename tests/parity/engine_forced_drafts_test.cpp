/// Drafts that are right with a given chance, as measurements have them.

#include <gtest/gtest.h>

#include "bench/april.h"
#include "bench/made_up_model.h"
#include "engine_fixture.h"

namespace slime {
namespace {

using engine::GenerateUpdate;
using testing::greedy_request;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;

engine::EngineConfig forced(int64_t most, double acceptance, bool always = true) {
  engine::EngineConfig config;
  config.drafts = {.most = most, .always = always, .forced_acceptance = acceptance};
  return config;
}

TEST(EngineForcedDrafts, ThatAreNeverRightLeaveTheResponseAsItIs) {
  TestEngine plain("qwen3");
  TestEngine bench("qwen3", forced(3, 0));
  const auto request = greedy_request(some_tokens(8), 25);
  const GenerateUpdate wanted = plain.generate(request), got = bench.generate(request);
  EXPECT_EQ(got.output_ids, wanted.output_ids);
  EXPECT_EQ(got.output_log_probs, wanted.output_log_probs);
  // The prompt's step draws the first token; 21 steps have room for three drafts, then for 2, 1 and none.
  EXPECT_EQ(got.drafts,
            (DraftCounts{.num_drafted = 21 * 3 + 2 + 1, .num_kept = 0, .num_steps = 25}));
}

TEST(EngineForcedDrafts, ThatAreAlwaysRightAreAllKept) {
  TestEngine bench("qwen3", forced(3, 1));
  const GenerateUpdate got = bench.generate(greedy_request(some_tokens(8), 25));
  EXPECT_EQ(got.output_ids.size(), 25U);
  // One token by the prompt, then six steps of four.
  EXPECT_EQ(got.drafts, (DraftCounts{.num_drafted = 18, .num_kept = 18, .num_steps = 7}));
}

TEST(EngineForcedDrafts, AreRightByRequestAndPositionAlone) {
  const auto request = sampled_request(some_tokens(8), 200, 7);
  TestEngine bench("qwen3", forced(3, 0.5));
  const DraftCounts alone = bench.generate(request).drafts;
  EXPECT_EQ(alone.num_steps + alone.num_kept, 200);
  // 1 + 1/2 + 1/4 + 1/8 tokens a step: 107 steps, with a deviation of 6.
  EXPECT_NEAR(static_cast<double>(alone.num_steps), 107, 18);

  TestEngine crowded("qwen3", forced(3, 0.5));
  for (uint64_t seed = 7; seed < 10; ++seed) {
    auto other = sampled_request(some_tokens(8), 200, seed);
    other.rid = "seed " + std::to_string(seed);
    crowded.submit(other);
  }
  DraftCounts same;
  for (uint64_t seed = 7; seed < 10; ++seed) {
    const GenerateUpdate got = crowded.responses().wait("seed " + std::to_string(seed));
    EXPECT_EQ(got.output_ids.size(), 200U);
    if (seed == 7) same = got.drafts;
  }
  EXPECT_EQ(same, alone);
}

TEST(EngineForcedDrafts, AreChosenByWhatTheyCost) {
  TestEngine bench("qwen3", forced(7, 0.5, /*always=*/false));
  const GenerateUpdate got = bench.generate(greedy_request(some_tokens(8), 200));
  EXPECT_EQ(got.output_ids.size(), 200U);
  EXPECT_EQ(got.drafts.num_steps + got.drafts.num_kept, 200);
}

TEST(AprilDrafts, OfEachFormAreCountedAndItsTokensAddUp) {
  const SystemClock clock;
  const model::ModelConfig shape = bench::read_shape(
      {.file = std::string(SLIME_SOURCE_DIR) + "/" + bench::kWorkloadsFile, .model = "qwen3-tiny"});
  const auto network = bench::make_up_network_on("cpu", shape);
  bench::AprilOptions options{.prompts = 3,
                              .samples = 2,
                              .prompt_tokens = 20,
                              .length_scale = 0.02,
                              .steps = 2,
                              .warm_up = 1,
                              .max_running_requests = 6,
                              .concurrency = 8};
  options.drafts = {.most = 3, .acceptance = 1, .always = true};
  engine::Engine engine(*network,
                        {.max_running_requests = 6,
                         .kv_cache_bytes = 32 << 20,
                         .context_length = 400,
                         .drafts = options.drafts.settings()},
                        clock);
  const bench::AprilRun run = run_april(engine, shape.vocab_size, nullptr, options, "sync");
  EXPECT_TRUE(run.ledger.adds_up());
  EXPECT_EQ(run.drafts.num_steps + run.drafts.num_kept, run.kept_tokens);
  EXPECT_EQ(run.drafts.num_kept, run.drafts.num_drafted);
  EXPECT_GT(bench::tokens_per_step(run.drafts), 2);
}

}  // namespace
}  // namespace slime
