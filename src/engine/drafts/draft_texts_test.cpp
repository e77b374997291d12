#include "engine/drafts/draft_texts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "core/splitmix64.h"
#include "engine/drafts/acceptance.h"

namespace slime::engine {
namespace {

using TokenIds = std::vector<TokenId>;

TokenIds ids_counted_from(TokenId first, int64_t count) {
  TokenIds ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::vector<TokenId> drafted(const DraftTexts::Text& text, int64_t most = 7) {
  std::vector<Draft> drafts;
  text.propose(most, drafts);
  std::vector<TokenId> ids;
  for (const Draft& draft : drafts) ids.push_back(draft.id);
  return ids;
}

TEST(DraftTexts, DraftsFromSiblingsThatRunAndThatEnded) {
  DraftTexts texts(1 << 20);
  const TokenIds prompt = {1, 2, 3};
  auto first = texts.begin(prompt, "");
  first->follow(TokenIds{10, 11, 12});
  const auto second = texts.begin(prompt, "");
  EXPECT_EQ(drafted(*second), (TokenIds{10, 11, 12})) << "behind the prompt";
  second->follow(TokenIds{10});
  EXPECT_EQ(drafted(*second), (TokenIds{11, 12}));
  EXPECT_EQ(drafted(*second, 1), (TokenIds{11}));
  first.reset();
  EXPECT_EQ(drafted(*second), (TokenIds{11, 12}));
  EXPECT_EQ(texts.num_prompts(), 1);
}

TEST(DraftTexts, KeepsPromptsAndSaltsApart) {
  DraftTexts texts(1 << 20);
  const auto first = texts.begin(TokenIds{1, 2, 3}, "a");
  first->follow(TokenIds{10, 11, 12});
  EXPECT_TRUE(drafted(*texts.begin(TokenIds{1, 2, 3}, "b")).empty());
  EXPECT_TRUE(drafted(*texts.begin(TokenIds{0, 2, 3}, "a")).empty());
  EXPECT_FALSE(drafted(*texts.begin(TokenIds{1, 2, 3}, "a")).empty());
  EXPECT_EQ(texts.num_prompts(), 3);
}

TEST(DraftTexts, AContextIsTheResponseThatWasGivenLast) {
  DraftTexts texts(1 << 20);
  const auto text = texts.begin(TokenIds{1}, "");
  text->follow(TokenIds{10, 11, 12, 13});
  text->follow(TokenIds{10, 11});  // the rest was cut off
  EXPECT_EQ(drafted(*text), (TokenIds{12, 13}));
}

TEST(DraftTexts, DropsTheLeastRecentlyUsedPromptsAndNoneThatRun) {
  std::optional<int64_t> bytes_of_one;
  {
    DraftTexts texts(1 << 30);
    texts.begin(ids_counted_from(0, 64), "")->follow(ids_counted_from(500, 64));
    bytes_of_one = texts.num_bytes();
  }
  const int64_t limit = *bytes_of_one * 3 + 3000;  // begun texts without tokens have some bytes
  ASSERT_LT(3000, *bytes_of_one);
  DraftTexts texts(limit);
  const auto use = [&texts](TokenId prompt) {
    const auto text = texts.begin(ids_counted_from(prompt, 64), "");
    text->follow(ids_counted_from(500, 64));
    return text;
  };
  const auto running = use(1000);
  use(2000);
  use(3000);
  texts.begin(ids_counted_from(2000, 64), "");
  use(4000);
  EXPECT_LE(texts.num_bytes(), limit);
  const auto is_known = [&texts](TokenId prompt) {
    const int64_t count = texts.num_prompts();
    const auto text = texts.begin(ids_counted_from(prompt, 64), "");
    return texts.num_prompts() == count && !drafted(*text).empty();
  };
  EXPECT_TRUE(is_known(1000));
  EXPECT_TRUE(is_known(2000));
  EXPECT_TRUE(is_known(4000));
  EXPECT_FALSE(is_known(3000));
}

TEST(DraftTexts, TextsDoNotGrowBeyondTheBoundAndAreDroppedWhenTheyEnd) {
  constexpr int64_t kLimit = 100'000;
  DraftTexts texts(kLimit);
  const TokenIds response = ids_counted_from(500, 20'000);
  auto text = texts.begin(TokenIds{1, 2}, "");
  for (int64_t size = 0; size < std::ssize(response); size += 50)
    text->follow(std::span(response).first(size));
  EXPECT_LE(texts.num_bytes(), kLimit * 3 / 2) << "a table may double in a call";
  EXPECT_GT(texts.num_bytes(), kLimit);
  text.reset();
  EXPECT_EQ(texts.num_bytes(), 0);
  EXPECT_EQ(texts.num_prompts(), 0);
}

TEST(DraftTexts, ThoseOfAPromptThatAlwaysRunsStayWithinTheBound) {
  constexpr int64_t kLimit = 100'000;
  DraftTexts texts(kLimit);
  const auto always = texts.begin(TokenIds{1, 2}, "");
  always->follow(TokenIds{7, 8, 9});
  for (TokenId i = 1; i <= 500; ++i)
    texts.begin(TokenIds{1, 2}, "")->follow(ids_counted_from(1000 * i, 60));
  EXPECT_LE(texts.num_bytes(), kLimit * 3 / 2) << "a table may double in a call";
  texts.begin(TokenIds{1, 2}, "")->follow(ids_counted_from(900'000, 60));
  const auto next = texts.begin(TokenIds{1, 2}, "");
  next->follow(TokenIds{900'020, 900'021});
  EXPECT_EQ(drafted(*next, 1), (TokenIds{900'022})) << "texts grow again";
  always->follow(TokenIds{7, 8, 9});
  next->follow(TokenIds{7, 8});
  EXPECT_EQ(drafted(*next, 1), (TokenIds{9})) << "what runs is indexed anew";
}

TEST(DraftTexts, MayEndBeforeItsTexts) {
  std::optional<DraftTexts> texts(std::in_place, 1 << 20);
  const auto text = texts->begin(TokenIds{1}, "");
  texts.reset();
  text->follow(TokenIds{5, 6, 5});
  EXPECT_EQ(drafted(*text, 1), (TokenIds{6}));
}

/// Eight responses side by side, each of passages of 20 tokens drawn from 40, with one free token between them.
/// Tokens a step when all drafts of a proposal are verified.
double tokens_a_step(int64_t most, double* foretold_over_kept = nullptr) {
  constexpr int64_t kSiblings = 8, kTokens = 600;
  std::vector<TokenIds> responses(kSiblings);
  for (int64_t i = 0; i < kSiblings; ++i) {
    for (uint64_t j = 0; std::ssize(responses[i]) < kTokens; ++j) {
      const uint64_t drawn = splitmix64(static_cast<uint64_t>(i) * 1000 + j);
      const TokenIds passage = ids_counted_from(static_cast<TokenId>(drawn % 40) * 20, 20);
      responses[i].insert(responses[i].end(), passage.begin(), passage.end());
      responses[i].push_back(static_cast<TokenId>(1000 + (drawn >> 32) % 500));
    }
    responses[i].resize(kTokens);
  }
  DraftTexts texts(1 << 24);
  std::vector<std::shared_ptr<DraftTexts::Text>> running;
  std::vector<Acceptance> acceptance(kSiblings);
  std::vector<int64_t> sizes(kSiblings);
  for (int64_t i = 0; i < kSiblings; ++i) running.push_back(texts.begin(TokenIds{2000, 2001}, ""));
  int64_t num_tokens = 0, num_steps = 0;
  double num_kept = 0, num_foretold = 0;
  for (bool is_done = false; !is_done;) {
    is_done = true;
    for (int64_t i = 0; i < kSiblings; ++i) {
      const std::span<const TokenId> all = responses[i];
      if (sizes[i] == kTokens) continue;
      is_done = false;
      std::vector<Draft> drafts;
      running[i]->propose(std::min(most, kTokens - sizes[i] - 1), drafts);
      acceptance[i].calibrate(drafts);
      int64_t kept = 0;
      while (kept < std::ssize(drafts) && drafts[kept].id == all[sizes[i] + kept]) ++kept;
      acceptance[i].told(std::ssize(drafts), kept);
      for (const Draft& draft : drafts) num_foretold += draft.chance;
      num_kept += static_cast<double>(kept);
      sizes[i] += kept + 1;
      num_tokens += kept + 1;
      ++num_steps;
      running[i]->follow(all.first(sizes[i]));
    }
  }
  if (foretold_over_kept != nullptr) *foretold_over_kept = num_foretold / num_kept;
  return static_cast<double>(num_tokens) / static_cast<double>(num_steps);
}

TEST(DraftTexts, SiblingsThatSharePassagesAreDraftedRight) {
  EXPECT_EQ(tokens_a_step(0), 1.0);
  double foretold_over_kept = 0;
  const double tokens = tokens_a_step(7, &foretold_over_kept);
  // Of 4,800 tokens 800 are of passages that nobody had. Of 21 others two are free: of 8 tokens a step four are
  // needed for them (the second free token is the own one of the third), of 4 a step six.
  EXPECT_NEAR(tokens, 4800 / (800 + 4000 * 4 / 21.0), 0.1);
  EXPECT_NEAR(tokens_a_step(3), 4800 / (800 + 4000 * 6 / 21.0), 0.1);
  EXPECT_GT(foretold_over_kept, 0.6) << "chances mean what they say";
  EXPECT_LT(foretold_over_kept, 1.4);
}

}  // namespace
}  // namespace slime::engine
