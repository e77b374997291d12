#include "engine/prompt_scores.h"

#include <gtest/gtest.h>

#include <numeric>

namespace slime::engine {
namespace {

Request prompt_of(int64_t length, int64_t start) {
  Request request;
  request.tokens.assign(static_cast<std::size_t>(length), 7);
  request.prompt_length = length;
  request.client.return_logprob = true;
  request.client.logprob_start_len = start;
  return request;
}

/// Positions that the chunks of a prompt score, in order.
std::vector<int64_t> scored_by_chunks(Request& request, int64_t chunk_tokens) {
  std::vector<int64_t> positions;
  while (request.num_missing() > 0) {
    const Chunk chunk{&request, std::min(chunk_tokens, request.num_missing())};
    const ScoredPositions scored = scored_positions(chunk);
    EXPECT_EQ(scores_prompt(chunk), scored.count() > 0);
    for (int64_t p = scored.begin; p < scored.end; ++p) {
      const int64_t row = first_scoring_row(chunk, scored) + p - scored.begin;
      EXPECT_EQ(request.num_computed + row, p - 1) << "the row before a token scores it";
      EXPECT_LT(row, chunk.num_tokens);
      positions.push_back(p);
    }
    EXPECT_EQ(begin_scores(chunk), scored.count());
    request.num_computed += chunk.num_tokens;
  }
  return positions;
}

TEST(PromptScores, ChunksScoreEachWantedPositionOnce) {
  for (const int64_t length : {1, 2, 7, 16, 31})
    for (const int64_t start : {0, 1, 5, 30})
      for (const int64_t chunk : {1, 2, 3, 16, 40}) {
        Request request = prompt_of(length, start);
        std::vector<int64_t> wanted(
            static_cast<std::size_t>(std::max<int64_t>(0, length - std::max<int64_t>(start, 1))));
        std::iota(wanted.begin(), wanted.end(), std::max<int64_t>(start, 1));
        EXPECT_EQ(scored_by_chunks(request, chunk), wanted) << length << ' ' << start;
        // That of the first token, which has none.
        EXPECT_EQ(request.pending.input_log_probs.size(), start == 0 ? 1U : 0U);
      }
}

TEST(PromptScores, AnInterruptedPromptIsScoredFromWhereItWas) {
  Request request = prompt_of(20, 0);
  const Chunk first{&request, 8};
  EXPECT_EQ(begin_scores(first), 8);  // tokens 1 to 8
  request.num_computed = 4;           // its pages went, and four tokens were found again
  const ScoredPositions scored = scored_positions({&request, 16});
  EXPECT_EQ(scored.begin, 9);
  EXPECT_EQ(scored.end, 20);
}

TEST(PromptScores, TokensOfTheResponseAreNotScored) {
  Request request = prompt_of(5, 0);
  request.num_computed = 5;
  request.num_scored = 5;
  request.tokens.push_back(3);
  EXPECT_FALSE(scores_prompt({&request, 1}));
  EXPECT_EQ(begin_scores({&request, 1}), 0);
  EXPECT_TRUE(request.pending.input_log_probs.empty());
}

TEST(PromptScores, WhatComesIsToldWithItsBestTokensWhereTheyAreWanted) {
  Request request = prompt_of(5, 2);
  append_scores(request, {{.id = 1, .log_prob = -0.5F, .top = {{-0.25F, 9}}}});
  EXPECT_EQ(request.pending.input_log_probs.size(), 1U);
  EXPECT_TRUE(request.pending.input_top.empty());
  request.client.top_logprobs_num = 1;
  append_scores(request, {{.id = 1, .log_prob = -1.5F, .top = {{-0.25F, 9}}}});
  EXPECT_EQ(request.pending.input_log_probs.back(), -1.5F);
  EXPECT_EQ(request.pending.input_top, (TopLogProbs{{{-0.25F, 9}}}));
}

}  // namespace
}  // namespace slime::engine
