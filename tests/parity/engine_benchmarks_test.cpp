/// The measurements of `slime bench` that drive an engine with updates and with a rollout.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/agents.h"
#include "bench/april.h"
#include "bench/update_pause.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/engine.h"

namespace slime::bench {
namespace {

struct TinyEngine {
  explicit TinyEngine(int64_t running)
      : shape(read_shape(
            {.file = std::string(SLIME_SOURCE_DIR) + "/" + kWorkloadsFile, .model = "qwen3-tiny"})),
        network(make_up_network_on("cpu", shape)),
        engine(*network,
               {.max_running_requests = running, .kv_cache_bytes = 32 << 20, .context_length = 400},
               clock) {}

  SystemClock clock;
  model::ModelConfig shape;
  std::unique_ptr<model::Network> network;
  engine::Engine engine;
};

/// Lengths of 16 tokens in the middle and 164 at most.
AprilOptions small() {
  return {.prompts = 3,
          .samples = 2,
          .prompt_tokens = 20,
          .length_scale = 0.02,
          .steps = 3,
          .warm_up = 1,
          .max_running_requests = 6,
          .concurrency = 8};
}

TEST(AprilLengths, AreLogNormalAndCut) {
  const AprilOptions options;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 20000; ++i) lengths.push_back(april_length(options, i));
  std::ranges::sort(lengths);
  // The median of so many draws is within 1.25 sigma / sqrt(20000) = 0.9 % of its place, the share
  // of those that are cut, ln(10.24) = 2.33 sigma out, 1 %.
  EXPECT_NEAR(static_cast<double>(lengths[10000]), 800, 3 * 0.009 * 800);
  EXPECT_EQ(lengths.back(), 8192);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(lengths, 8192)), 200, 45);
  EXPECT_EQ(april_length({.length_scale = 0.5}, 77), (april_length(options, 77) + 1) / 2);
}

TEST(April, TheTokensOfEachFormAddUp) {
  TinyEngine tiny(6);
  const AprilOptions options = small();
  for (const auto& [form, groups] :
       {std::pair{"sync", 9}, std::pair{"partial", 9}, std::pair{"sync-double", 18}}) {
    const AprilRun run = run_april(tiny.engine, tiny.shape.vocab_size, nullptr, options, form);
    EXPECT_EQ(run.steps, 3) << form;
    EXPECT_EQ(run.groups, groups) << form;
    EXPECT_TRUE(run.ledger.adds_up()) << form;
    const bool is_partial = form == std::string("partial");
    EXPECT_EQ(run.ledger.pending > 0, is_partial) << form;
    if (!is_partial) {
      EXPECT_EQ(run.ledger.discarded, 0) << form;
    }
  }
}

TEST(April, StepsOfTheSynchronousFormCanBeMeasuredApart) {
  TinyEngine tiny(6);
  AprilOptions options = small();
  const auto kept = [&] {
    return run_april(tiny.engine, tiny.shape.vocab_size, nullptr, options, "sync").kept_tokens;
  };
  const int64_t together = kept();
  options.steps = 1;
  const int64_t first = kept();
  options.first_step = 1;
  options.steps = 2;
  EXPECT_EQ(first + kept(), together);
}

AgentsOptions few_agents() {
  return {.agents = 3, .turns = 3, .prompt_tokens = 40, .growth = 50, .new_tokens = 8};
}

TEST(Agents, SeeEachTokenOfEachTurn) {
  TinyEngine tiny(3);
  const AgentsOptions options = few_agents();
  const AgentsRun run = run_agents(tiny.engine, options, tiny.shape.vocab_size, 1, tiny.clock);
  int64_t answered = 0;
  for (int64_t agent = 0; agent < 3; ++agent)
    for (int64_t turn = 0; turn < 3; ++turn) answered += answer_length(options, agent, turn);
  EXPECT_EQ(run.output_tokens, answered);
  EXPECT_EQ(run.prompt_tokens, 3 * (40 + 90 + 140));
  EXPECT_EQ(run.first_turn_waits.size(), 3U);
  EXPECT_EQ(run.later_waits.size(), 6U);
  EXPECT_EQ(static_cast<int64_t>(run.gaps.size()), answered - 9);
  // Of a later turn all is known but the last token of the answer before and what the tool says.
  EXPECT_GT(run.cached_tokens, 3 * (40 + 90));
  EXPECT_GT(agents_line(options, {run}).at("value").to_number<double>(), 0);
}

TEST(Agents, AnswersHaveHalfTheirMeanToHalfMore) {
  const AgentsOptions options;
  for (int64_t agent = 0; agent < options.agents; ++agent) {
    EXPECT_GE(answer_length(options, agent, 3), 128);
    EXPECT_LE(answer_length(options, agent, 3), 384);
  }
}

TEST(Agents, WhoseAnswersDoNotFitIntoTheGrowthAreRefused) {
  TinyEngine tiny(3);
  AgentsOptions options = few_agents();
  options.growth = 11;
  EXPECT_THROW(run_agents(tiny.engine, options, tiny.shape.vocab_size, 1, tiny.clock), ConfigError);
}

TEST(UpdatePause, EachModeCountsEachUpdate) {
  TinyEngine tiny(4);
  const auto fresh = make_up_network_on("cpu", tiny.shape);
  UpdatePauseOptions options;
  options.sequences = 4;
  options.prompt_tokens = 20;
  options.steps_per_update = 3;
  options.updates = 5;
  for (const std::string& mode : options.modes) {
    const json::object line =
        measure_update_pause(engine_here(tiny.engine, *fresh, mode), options, mode);
    EXPECT_EQ(line.at("updates").to_number<int64_t>(), 5) << mode;
    EXPECT_EQ(line.at("bytes_copied").to_number<int64_t>(),
              static_cast<int64_t>(fresh->weights().flat().nbytes()));
    EXPECT_GE(line.at("value").to_number<double>(), 0) << mode;
    EXPECT_GT(line.at("copy_ms").to_number<double>(), 0) << mode;
    EXPECT_GT(line.at("normal_step_ms").to_number<double>(), 0) << mode;
  }
}

}  // namespace
}  // namespace slime::bench
