/// Fast steps whose tokens nobody has verified: what they may hold, and what becomes of their keys.

#include <gtest/gtest.h>

#include "engine/scheduler_for_tests.h"
#include "engine/verification_rounds.h"

namespace slime::engine {
namespace {

using testing::Bench;
using testing::keys_of;
using testing::numbered_prompt;

constexpr int64_t kVerified = 4;  // EngineConfig::verify_tokens

SchedulerConfig ahead_config() {
  return {.page_tokens = 4, .max_prefill_tokens = 64, .verify_tokens = kVerified};
}

/// As StepPipeline does it, with tokens that the test makes up.
void run_fast(Bench& bench, TokenId drawn) {
  for (const Chunk& chunk : bench.scheduler().plan_ahead()) {
    Request& request = *chunk.request;
    EXPECT_TRUE(chunk.is_tentative);
    EXPECT_EQ(chunk.arithmetic, StepArithmetic::kFast);
    if (!request.tentative.is_open()) request.tentative.begin = std::ssize(request.tokens);
    bench.scheduler().advance(chunk);
    request.tokens.push_back(drawn);
  }
}

/// The first `num_kept` drafts of each request stand, then `drawn` comes.
std::vector<Chunk> run_exact(Bench& bench, int64_t num_kept, TokenId drawn) {
  const std::vector<Chunk> chunks = bench.scheduler().plan_step();
  for (const Chunk& chunk : chunks) {
    Request& request = *chunk.request;
    EXPECT_FALSE(chunk.is_tentative);
    EXPECT_EQ(chunk.arithmetic, StepArithmetic::kTraining);
    const int64_t kept = std::min(num_kept, chunk.num_drafts);
    const bool draws = chunk.completes() && request.max_tokens > request.prompt_length;
    request.tokens.resize(request.tokens.size() -
                          static_cast<std::size_t>(chunk.num_drafts - kept));
    request.tentative.close();
    bench.scheduler().advance(
        {.request = &request, .num_tokens = chunk.num_tokens - chunk.num_drafts + kept});
    if (draws) request.tokens.push_back(drawn);
  }
  return chunks;
}

TEST(SchedulerAhead, WithoutVerificationStepsAreFast) {
  Bench bench({.page_tokens = 4}, /*num_pages=*/16);
  bench.submit(numbered_prompt(0, 6), 20);
  const std::vector<Chunk> chunks = bench.scheduler().plan_step();
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].arithmetic, StepArithmetic::kFast);
  EXPECT_FALSE(chunks[0].is_tentative);
}

TEST(SchedulerAhead, TentativeTokensAreTheDraftsOfTheStepThatVerifies) {
  Bench bench(ahead_config(), /*num_pages=*/16);
  Request& request = bench.submit(numbered_prompt(0, 6), 20);
  EXPECT_TRUE(bench.scheduler().plan_ahead().empty()) << "the prompt is of training arithmetic";
  run_exact(bench, 0, 100);
  for (int64_t i = 0; i < kVerified + 2; ++i) run_fast(bench, static_cast<TokenId>(101 + i));
  EXPECT_EQ(request.num_tentative(), kVerified);
  EXPECT_EQ(request.num_computed, 6 + kVerified);
  const std::vector<Chunk> chunks = run_exact(bench, 2, 50);
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].num_tokens, 1 + kVerified);
  EXPECT_EQ(chunks[0].num_drafts, kVerified);
  EXPECT_EQ(request.tokens, (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 100, 101, 102, 50}));
  EXPECT_EQ(request.num_computed, 9);
  EXPECT_EQ(request.num_tentative(), 0);
}

TEST(SchedulerAhead, TheTreeGetsVerifiedKeysAlone) {
  for (const bool is_removed : {false, true}) {
    Bench bench(ahead_config(), /*num_pages=*/16);
    Request& request = bench.submit(numbered_prompt(0, 6), 20);
    run_exact(bench, 0, 100);
    run_fast(bench, 101);
    run_fast(bench, 102);
    std::vector<TokenId> tokens = request.tokens;
    if (is_removed) {
      const auto removed = bench.scheduler().remove(request);
      EXPECT_EQ(removed->tokens, (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 100}));
    } else {
      bench.scheduler().retract_all(/*keeps_prefixes=*/true);
      EXPECT_EQ(request.tokens, (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 100}));
      EXPECT_FALSE(request.tentative.is_open());
    }
    // That of token 100 was written by a fast step.
    EXPECT_EQ(bench.tree().match(keys_of(tokens)).num_tokens, 6);
    bench.check_pages();
  }
}

TEST(SchedulerAhead, TheLastTokenOfAResponseIsNeverTentative) {
  Bench bench(ahead_config(), /*num_pages=*/16);
  Request& request = bench.submit(numbered_prompt(0, 6), 4);
  run_exact(bench, 0, 100);
  for (int i = 0; i < 5; ++i) run_fast(bench, 101);
  EXPECT_EQ(request.num_tentative(), 2) << "the step that verifies draws the fourth";
}

TEST(SchedulerAhead, ATokenThatSeemsToEndTheResponseIsTheLast) {
  Bench bench(ahead_config(), /*num_pages=*/16);
  Request& request = bench.submit(numbered_prompt(0, 6), 20);
  run_exact(bench, 0, 100);
  run_fast(bench, 101);
  request.tentative.ends = true;
  EXPECT_TRUE(bench.scheduler().plan_ahead().empty());
  EXPECT_EQ(run_exact(bench, 1, 102).at(0).num_drafts, 1);
  EXPECT_EQ(bench.scheduler().plan_ahead().size(), 1U);
}

TEST(SchedulerAhead, WhatDoesNotFitIntoAStepIsVerifiedByALaterOne) {
  SchedulerConfig config = ahead_config();
  config.max_prefill_tokens = 7;
  Bench bench(config, /*num_pages=*/32);
  bench.submit(numbered_prompt(0, 3), 20);
  bench.submit(numbered_prompt(50, 3), 20);
  run_exact(bench, 0, 100);
  run_fast(bench, 101);
  run_fast(bench, 102);
  run_fast(bench, 103);
  const std::vector<Chunk> first = run_exact(bench, 3, 104), second = run_exact(bench, 3, 104);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].num_drafts, 3);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0].num_drafts, 0);
  EXPECT_EQ(second[1].num_drafts, 3);
}

TEST(SchedulerAhead, WhereNoPageIsFreeTheNewestRequestIsRetractedWithoutItsTentativeTokens) {
  Bench bench(ahead_config(), /*num_pages=*/8);
  Request& older = bench.submit(numbered_prompt(0, 7), 12);
  Request& newer = bench.submit(numbered_prompt(50, 7), 12);
  run_exact(bench, 0, 100);
  ASSERT_EQ(bench.scheduler().num_running(), 2);
  // Four pages each, and the step that verifies wants a fifth for the older one.
  int64_t num_fast = 0;
  while (bench.scheduler().num_running() == 2 && num_fast < 12) {
    for (int i = 0; i < kVerified; ++i, ++num_fast) run_fast(bench, 101);
    if (bench.scheduler().num_running() == 2) run_exact(bench, kVerified, 102);
  }
  EXPECT_EQ(bench.scheduler().num_running(), 1);
  EXPECT_EQ(newer.num_tentative(), 0);
  EXPECT_EQ(newer.num_computed, 0);
  EXPECT_GT(older.num_computed, 7);
  bench.check_pages();
}

/// So many requests that decode, each with `num_tentative` tokens.
void decode(Bench& bench, int64_t num_requests, int64_t num_tentative) {
  for (int64_t i = 0; i < num_requests; ++i)
    bench.submit(numbered_prompt(static_cast<TokenId>(100 * i), 3), 20);
  run_exact(bench, 0, 7);
  for (int64_t i = 0; i < num_tentative; ++i) run_fast(bench, 8);
}

TEST(VerificationRounds, EndWhenARequestHasAllItsTentativeTokens) {
  Bench bench(ahead_config(), /*num_pages=*/64);
  VerificationRounds rounds(/*most_rows=*/512);
  decode(bench, 5, 0);
  for (int64_t i = 0; i < kVerified; ++i) {
    EXPECT_FALSE(rounds.ends_with(bench.scheduler())) << i;
    run_fast(bench, 8);
  }
  EXPECT_TRUE(rounds.ends_with(bench.scheduler()));
}

TEST(VerificationRounds, EndWhenEnoughRowsWait) {
  Bench bench(ahead_config(), /*num_pages=*/64);
  VerificationRounds rounds(/*most_rows=*/14);
  decode(bench, 5, 0);
  EXPECT_FALSE(rounds.ends_with(bench.scheduler()));
  run_fast(bench, 8);
  EXPECT_FALSE(rounds.ends_with(bench.scheduler())) << "10 rows";
  run_fast(bench, 8);
  EXPECT_TRUE(rounds.ends_with(bench.scheduler())) << "15 rows";
}

TEST(VerificationRounds, ARequestThatHasNothingToDecodeWaitsForFourStepsAtMost) {
  SchedulerConfig config = ahead_config();
  config.verify_tokens = 16;
  Bench bench(config, /*num_pages=*/64);
  VerificationRounds rounds(/*most_rows=*/512);
  decode(bench, 8, 1);
  bench.scheduler().all().front()->tentative.ends = true;
  for (int64_t i = 0; i < VerificationRounds::kMostFastSteps; ++i) {
    EXPECT_FALSE(rounds.ends_with(bench.scheduler())) << i;
    run_fast(bench, 8);
  }
  EXPECT_TRUE(rounds.ends_with(bench.scheduler()));
  run_exact(bench, 16, 9);
  EXPECT_FALSE(rounds.ends_with(bench.scheduler()));
}

TEST(VerificationRounds, RequestsThatAreAQuarterOfThoseThatDecodeDoNotWait) {
  Bench bench(ahead_config(), /*num_pages=*/64);
  VerificationRounds rounds(/*most_rows=*/512);
  decode(bench, 5, 1);
  bench.scheduler().all().front()->tentative.ends = true;
  EXPECT_TRUE(rounds.ends_with(bench.scheduler()));
}

TEST(VerificationRounds, PromptsThatAreScoredAloneEndOneRoundAndNoMore) {
  Bench bench(ahead_config(), /*num_pages=*/64);
  VerificationRounds rounds(/*most_rows=*/512);
  decode(bench, 4, 0);
  Request& scored = bench.submit(numbered_prompt(900, 3), /*max_new_tokens=*/0);
  EXPECT_TRUE(rounds.ends_with(bench.scheduler())) << "its prompt is of training arithmetic";
  run_exact(bench, 0, 7);
  ASSERT_EQ(scored.num_missing(), 0) << "its step is in flight";
  EXPECT_EQ(bench.scheduler().ahead_counts(512).num_stalled, 0);
  for (int64_t i = 0; i < kVerified; ++i) {
    EXPECT_FALSE(rounds.ends_with(bench.scheduler())) << i;
    run_fast(bench, 8);
  }
  EXPECT_TRUE(rounds.ends_with(bench.scheduler())) << "the others have all their tokens";
}

TEST(VerificationRounds, PromptsThatWaitForPagesEndNoRound) {
  Bench bench(ahead_config(), /*num_pages=*/7);
  VerificationRounds rounds(/*most_rows=*/512);
  bench.submit(numbered_prompt(0, 15), 12);
  EXPECT_TRUE(rounds.ends_with(bench.scheduler())) << "it may be admitted";
  run_exact(bench, 0, 7);
  bench.submit(numbered_prompt(100, 15), 12);
  EXPECT_TRUE(rounds.ends_with(bench.scheduler())) << "perhaps it may";
  run_exact(bench, 0, 7);
  ASSERT_EQ(bench.scheduler().num_waiting(), 1);
  EXPECT_FALSE(rounds.ends_with(bench.scheduler())) << "it has been tried";
  bench.scheduler().remove(*bench.scheduler().all().front());
  EXPECT_TRUE(rounds.ends_with(bench.scheduler()));
}

}  // namespace
}  // namespace slime::engine
