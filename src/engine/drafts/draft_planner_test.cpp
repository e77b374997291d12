/// What the planner asks of a draft layer, and what it makes of its guesses.

#include "engine/drafts/draft_planner.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/scheduler_for_tests.h"

namespace slime::engine {
namespace {

/// One request, whose steps the test makes.
class PlannedRequest {
 public:
  PlannedRequest(const DraftSettings& settings, std::vector<TokenId> prompt, int64_t max_new_tokens)
      : bench_({.max_prefill_tokens = 16}, /*num_pages=*/16),
        planner_(settings),
        request_(bench_.submit(std::move(prompt), max_new_tokens)) {
    request_.client.sampling.max_new_tokens = max_new_tokens;
  }

  DraftPlanner& planner() { return planner_; }
  Request& request() { return request_; }

  Chunk plan(bool verifies = true) {
    std::vector<Chunk> chunks = bench_.scheduler().plan_step();
    EXPECT_EQ(chunks.size(), 1U);
    planner_.add_drafts(chunks, bench_.scheduler(), [&](const Request&) { return verifies; });
    return chunks.at(0);
  }
  /// The drafts that the chunk has.
  std::vector<TokenId> drafts_of(const Chunk& chunk) {
    return {request_.tokens.end() - chunk.num_drafts, request_.tokens.end()};
  }
  /// Its first `num_kept` drafts are right, then `drawn` comes.
  void end(const Chunk& chunk, int64_t num_kept, std::vector<TokenId> drawn) {
    request_.tokens.resize(request_.tokens.size() - (chunk.num_drafts - num_kept));
    bench_.scheduler().advance(
        {.request = &request_, .num_tokens = chunk.num_tokens - chunk.num_drafts + num_kept});
    request_.tokens.insert(request_.tokens.end(), drawn.begin(), drawn.end());
    planner_.note_kept(request_, chunk.num_drafts, num_kept);
  }

 private:
  testing::Bench bench_;
  DraftPlanner planner_;
  Request& request_;
};

std::vector<TokenId> different_tokens(int64_t count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

constexpr DraftSettings kLayerAlone{.most = 3, .always = true, .texts = false, .layer = true};

TEST(DraftPlanner, PromptsFeedTheLayerAndTheirLastChunkIsForetold) {
  PlannedRequest planned(kLayerAlone, different_tokens(20), 30);
  const Chunk first = planned.plan();
  EXPECT_EQ(first.num_tokens, 16);
  EXPECT_TRUE(first.feeds_draft_layer);
  EXPECT_EQ(first.num_foretold, 0) << "what follows is known";
  planned.end(first, 0, {});
  const Chunk rest = planned.plan();
  EXPECT_EQ(rest.num_tokens, 4);
  EXPECT_TRUE(rest.feeds_draft_layer);
  EXPECT_EQ(rest.num_foretold, 3);
  EXPECT_EQ(rest.num_drafts, 0);
}

TEST(DraftPlanner, GuessesServeTheNextStepAlone) {
  PlannedRequest planned(kLayerAlone, different_tokens(10), 30);
  planned.end(planned.plan(), 0, {5});
  planned.planner().note_foretold(planned.request(), {{7, 0.9}, {8, 0.5}, {9, 0.2}});
  const Chunk verifies = planned.plan();
  EXPECT_EQ(verifies.num_tokens, 1 + 3);
  EXPECT_EQ(planned.drafts_of(verifies), (std::vector<TokenId>{7, 8, 9}));
  EXPECT_EQ(verifies.num_foretold, 3);
  planned.end(verifies, 1, {6});
  EXPECT_EQ(planned.plan().num_drafts, 0);
}

TEST(DraftPlanner, NothingIsForetoldThatCannotBeVerified) {
  PlannedRequest planned(kLayerAlone, different_tokens(10), 3);
  const Chunk prompt = planned.plan();
  EXPECT_EQ(prompt.num_foretold, 2);  // the second of three tokens to come, and the third
  planned.end(prompt, 0, {5});
  planned.planner().note_foretold(planned.request(), {{7, 0.9}, {8, 0.5}});
  const Chunk second = planned.plan();
  EXPECT_EQ(second.num_drafts, 1) << "behind the last draft one more token is drawn";
  EXPECT_EQ(second.num_foretold, 0);
  EXPECT_TRUE(second.feeds_draft_layer) << "for whoever goes on with this text";

  PlannedRequest scored(kLayerAlone, different_tokens(10), 1);
  EXPECT_FALSE(scored.plan().feeds_draft_layer);
}

TEST(DraftPlanner, PagesAreTakenForDraftsThatThereAre) {
  DraftSettings settings = kLayerAlone;
  settings.always = false;
  PlannedRequest planned(settings, different_tokens(15), 30);
  planned.end(planned.plan(), 0, {5});
  Chunk chunk = planned.plan();
  EXPECT_EQ(chunk.num_drafts, 0);
  EXPECT_EQ(planned.request().pages.size(), 1U) << "of 16 tokens";
  planned.end(chunk, 0, {6});
  for (TokenId drawn = 7; drawn < 22; ++drawn) planned.end(planned.plan(), 0, {drawn});
  EXPECT_EQ(planned.request().pages.size(), 2U);
  planned.planner().note_foretold(planned.request(), {{7, 0.9}});
  chunk = planned.plan();
  EXPECT_EQ(chunk.num_drafts, 1);
  EXPECT_EQ(planned.request().pages.size(), 3U);
}

TEST(DraftPlanner, OneGuessMoreIsMadeThanWasRight) {
  DraftSettings settings = kLayerAlone;
  settings.always = false;
  PlannedRequest planned(settings, different_tokens(10), 30);
  const std::vector<Draft> sure{{7, 0.9}, {8, 0.9}, {9, 0.9}};
  Chunk chunk = planned.plan();
  EXPECT_EQ(chunk.num_foretold, 1);
  planned.end(chunk, 0, {5});
  for (const int64_t kept : {1, 2, 3}) {
    planned.planner().note_foretold(planned.request(), {sure.begin(), sure.begin() + kept});
    chunk = planned.plan();
    ASSERT_EQ(chunk.num_drafts, kept) << "rows cost nothing while nothing is measured";
    planned.end(chunk, kept, {5});
  }
  planned.planner().note_foretold(planned.request(), sure);
  chunk = planned.plan();
  EXPECT_EQ(chunk.num_foretold, 3) << "three at most";
  planned.end(chunk, 0, {5});
  EXPECT_EQ(planned.plan().num_foretold, 1);
}

TEST(DraftPlanner, TheSourceOfWhichMoreAreLikelyToBeRightIsTaken) {
  DraftSettings both = kLayerAlone;
  both.texts = true;
  PlannedRequest repeats(both, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3}, 30);
  repeats.end(repeats.plan(), 0, {4});
  repeats.planner().note_foretold(repeats.request(), {{9, 0.9}, {9, 0.5}});
  EXPECT_EQ(repeats.drafts_of(repeats.plan()), (std::vector<TokenId>{1, 2, 3}));

  PlannedRequest does_not(both, different_tokens(11), 30);
  does_not.end(does_not.plan(), 0, {4});
  does_not.planner().note_foretold(does_not.request(), {{9, 0.1}, {9, 0.01}});
  EXPECT_EQ(does_not.drafts_of(does_not.plan()), (std::vector<TokenId>{9, 9}));
}

TEST(DraftPlanner, RequestsWhoseDraftsAreNotVerifiedGetNone) {
  DraftSettings texts_alone = kLayerAlone;
  texts_alone.texts = true;
  texts_alone.layer = false;
  PlannedRequest repeats(texts_alone, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3}, 30);
  repeats.end(repeats.plan(), 0, {4});
  Chunk chunk = repeats.plan(/*verifies=*/false);
  EXPECT_EQ(chunk.num_tokens, 1);
  EXPECT_EQ(chunk.num_drafts, 0);
  repeats.end(chunk, 0, {1});
  EXPECT_EQ(repeats.plan().num_drafts, 3);
}

TEST(DraftPlanner, AsksNothingOfALayerThatThereIsNot) {
  PlannedRequest planned({.most = 3, .always = true}, different_tokens(10), 30);
  const Chunk chunk = planned.plan();
  EXPECT_FALSE(chunk.feeds_draft_layer);
  EXPECT_EQ(chunk.num_foretold, 0);
}

}  // namespace
}  // namespace slime::engine
