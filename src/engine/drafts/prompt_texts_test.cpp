#include "engine/drafts/prompt_texts.h"

#include <gtest/gtest.h>

#include <numeric>

namespace slime::engine {
namespace {

std::vector<TokenId> ids_from(TokenId first, int64_t count) {
  std::vector<TokenId> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::vector<TokenId> drafted_behind(const PromptTexts& texts, const std::vector<TokenId>& context) {
  std::vector<Draft> drafts;
  texts.index().propose(context, 1, drafts);
  std::vector<TokenId> ids;
  for (const Draft& draft : drafts) ids.push_back(draft.id);
  return ids;
}

TEST(PromptTexts, IndexesTheResponseAtOnceAndThePromptInPieces) {
  PromptTexts texts(ids_from(0, 1000), "");
  const auto response = texts.begin();
  texts.follow(response, ids_from(5000, 4));
  EXPECT_EQ(texts.index().size(response->text), 4);
  EXPECT_EQ(texts.index().size(0), 60) << "64 tokens a call";
  EXPECT_EQ(drafted_behind(texts, {20, 21}), (std::vector<TokenId>{22}));
  EXPECT_TRUE(drafted_behind(texts, {800, 801}).empty());
  EXPECT_EQ(drafted_behind(texts, {998, 999}), (std::vector<TokenId>{5000}));
  for (int i = 0; i < 15; ++i) texts.follow(response, ids_from(5000, 4));
  EXPECT_EQ(texts.index().size(0), 1000);
  EXPECT_EQ(drafted_behind(texts, {800, 801}), (std::vector<TokenId>{802}));
}

TEST(PromptTexts, ALongResponseCatchesUpAndAShortenedOneStays) {
  PromptTexts texts(ids_from(0, 3), "");
  const auto response = texts.begin();
  texts.follow(response, ids_from(100, 200));
  EXPECT_EQ(texts.index().size(response->text), 64);
  for (int i = 0; i < 3; ++i) texts.follow(response, ids_from(100, 200));
  EXPECT_EQ(texts.index().size(response->text), 200);
  texts.follow(response, ids_from(100, 150));
  EXPECT_EQ(texts.index().size(response->text), 200);
}

TEST(PromptTexts, LeavesOutTheOldestResponsesWhenTooManyEnded) {
  PromptTexts texts(ids_from(0, 100), "");
  const auto running = texts.begin();
  std::vector<TokenId> tokens = ids_from(1'000'000, 3);
  texts.follow(running, tokens);
  for (TokenId i = 0; i <= PromptTexts::kMostEnded; ++i) {
    const auto response = texts.begin();
    texts.follow(response, ids_from(1000 * (i + 1), 30));
    texts.end(response);
  }
  EXPECT_EQ(texts.num_ended(), PromptTexts::kMostEnded / 2);
  const auto oldest = ids_from(1005, 3), newest = ids_from(65'005, 3);
  EXPECT_EQ(drafted_behind(texts, oldest).size(), 1U) << "the old index serves until then";
  const int64_t bytes = texts.num_bytes();
  int num_calls = 0;
  while (!drafted_behind(texts, oldest).empty()) {
    ASSERT_LT(++num_calls, 60);  // 100 + 32 * 30 + the running response, 63 a call
    tokens.push_back(1'000'000 + static_cast<TokenId>(tokens.size()));
    texts.follow(running, tokens);
    EXPECT_EQ(drafted_behind(texts, newest).size(), 1U);
    EXPECT_EQ(drafted_behind(texts, {1'000'000, 1'000'001}).size(), 1U);
  }
  EXPECT_GT(num_calls, 10);
  EXPECT_LT(texts.num_bytes(), bytes);
  EXPECT_EQ(texts.index().size(running->text), std::ssize(tokens));
  EXPECT_EQ(drafted_behind(texts, {50, 51}), (std::vector<TokenId>{52}));
  tokens.push_back(7);
  texts.follow(running, tokens);
  EXPECT_EQ(texts.index().token(running->text, std::ssize(tokens) - 1), 7);
}

TEST(PromptTexts, ForgetsWhatEndedAndIndexesTheRestAnew) {
  PromptTexts texts(ids_from(0, 10), "");
  const auto running = texts.begin();
  texts.follow(running, ids_from(500, 20));
  for (TokenId i = 0; i <= PromptTexts::kMostEnded; ++i) {
    const auto response = texts.begin();
    texts.follow(response, ids_from(1000 * (i + 1), 40));
    texts.end(response);
  }
  const int64_t bytes = texts.num_bytes();
  texts.forget_ended();
  EXPECT_EQ(texts.num_ended(), 0);
  EXPECT_LT(texts.num_bytes(), bytes / 10);
  EXPECT_TRUE(drafted_behind(texts, {65'005, 65'006}).empty());
  texts.follow(running, ids_from(500, 21));
  EXPECT_EQ(drafted_behind(texts, {519}), (std::vector<TokenId>{520}));
  EXPECT_EQ(drafted_behind(texts, {9}), (std::vector<TokenId>{500}));
  EXPECT_EQ(drafted_behind(texts, {3}), (std::vector<TokenId>{4}));
}

TEST(PromptTexts, ResponsesThatBeginAndEndWhileTheIndexIsReplacedAreKept) {
  PromptTexts texts(ids_from(0, 10), "");
  for (TokenId i = 0; i <= PromptTexts::kMostEnded; ++i) {
    const auto response = texts.begin();
    texts.follow(response, ids_from(1000 * (i + 1), 40));
    texts.end(response);
  }
  const auto during = texts.begin();
  texts.follow(during, ids_from(500'000, 40));
  texts.end(during);
  const auto running = texts.begin();
  for (int i = 0; i < 40; ++i) texts.follow(running, ids_from(600'000, 2));
  EXPECT_TRUE(drafted_behind(texts, {1005, 1006}).empty()) << "it was replaced";
  EXPECT_EQ(drafted_behind(texts, {500'038}), (std::vector<TokenId>{500'039}));
  EXPECT_EQ(drafted_behind(texts, {9, 600'000}), (std::vector<TokenId>{600'001}));
}

}  // namespace
}  // namespace slime::engine
