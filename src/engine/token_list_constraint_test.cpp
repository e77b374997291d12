#include "engine/token_list_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Allowed = TokenConstraint::Allowed;

constexpr int64_t kListVocab = 40;  // more than a word of a mask

/// Ids that may come next.
std::vector<TokenId> next_ids(TokenConstraint& constraint) {
  std::vector<uint32_t> words(mask_words(kListVocab), 0);
  std::vector<TokenId> ids;
  if (constraint.allow(words) == Allowed::kNone) return ids;
  for (TokenId id = 0; id < 32 * std::ssize(words); ++id)
    if (is_allowed(words, id)) ids.push_back(id);
  return ids;
}

std::vector<TokenId> all_but(std::vector<TokenId> banned) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kListVocab; ++id)
    if (std::ranges::find(banned, id) == banned.end()) ids.push_back(id);
  return ids;
}

/// A grammar that allows the ids below three, and is over with the second.
class BelowThree final : public TokenConstraint {
 public:
  void accept(TokenId) override { ++num_; }
  Allowed allow(std::span<uint32_t> words) override {
    words[0] = 0b111;
    return Allowed::kSome;
  }
  bool is_quick() const override { return false; }
  bool is_over() const override { return num_ == 2; }

 private:
  int num_ = 0;
};

TEST(TokenListConstraint, AllowsTheIdsOfTheListAlone) {
  TokenListConstraint constraint({.allowed_ids = {3, 35}}, kListVocab, nullptr);
  EXPECT_THAT(next_ids(constraint), ElementsAre(3, 35));
  constraint.accept(35);
  EXPECT_THAT(next_ids(constraint), ElementsAre(3, 35));
  EXPECT_TRUE(constraint.is_quick());
}

TEST(TokenListConstraint, ARunIsBannedAtItsLastToken) {
  TokenListConstraint constraint({.banned_runs = {{7}, {1, 2, 3}, {2, 2}}}, kListVocab, nullptr);
  EXPECT_EQ(next_ids(constraint), all_but({7}));
  constraint.accept(1);
  constraint.accept(2);
  EXPECT_EQ(next_ids(constraint), all_but({7, 3, 2}));
  constraint.accept(4);
  constraint.accept(2);
  EXPECT_EQ(next_ids(constraint), all_but({7, 2}));
}

TEST(TokenListConstraint, NoTokenEndsAResponseBeforeItsLeastLength) {
  TokenListConstraint constraint({.allowed_ids = {3, 4}, .end_ids = {4}, .min_tokens = 2},
                                 kListVocab, nullptr);
  EXPECT_THAT(next_ids(constraint), ElementsAre(3));
  constraint.accept(3);
  EXPECT_THAT(next_ids(constraint), ElementsAre(3));
  constraint.accept(3);
  EXPECT_THAT(next_ids(constraint), ElementsAre(3, 4));
}

TEST(TokenListConstraint, ListsThatLeaveNothingAreAProblemThatNamesThem) {
  TokenListConstraint ends({.allowed_ids = {4}, .end_ids = {4}, .min_tokens = 2}, kListVocab,
                           nullptr);
  EXPECT_THAT(next_ids(ends), IsEmpty());
  EXPECT_THAT(ends.problem(),
              HasSubstr("allowed_token_ids and bad_words leave no token that does"));
  TokenListConstraint apart({.allowed_ids = {30}}, kListVocab, std::make_unique<BelowThree>());
  EXPECT_THAT(next_ids(apart), IsEmpty());
  EXPECT_THAT(apart.problem(), HasSubstr("that the grammar allows"));
}

TEST(TokenListConstraint, AGrammarBindsNextToTheLists) {
  TokenListConstraint constraint({.allowed_ids = {1, 2, 30}, .banned_runs = {{2}}}, kListVocab,
                                 std::make_unique<BelowThree>());
  EXPECT_THAT(next_ids(constraint), ElementsAre(1));
  EXPECT_FALSE(constraint.is_quick());
  constraint.accept(1);
  EXPECT_FALSE(constraint.is_over());
  constraint.accept(1);
  EXPECT_TRUE(constraint.is_over());
}

/// a, b, " a", "ab", and a blank.
std::unique_ptr<text::Tokenizer> make_word_tokenizer() {
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const json::value tokenizer = {
      {"version", "1.0"},
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"b", 1}, {"\xc4\xa0", 2}, {"\xc4\xa0\x61", 3}, {"c", 4}}},
        {"merges", json::array{"\xc4\xa0 a"}}}}};
  return text::Tokenizer::from_json(json_text(tokenizer), "");
}

TEST(TokenLists, AWordIsItsTokensAtABeginningAndBehindABlank) {
  const auto tokenizer = make_word_tokenizer();
  GenerateRequest request;
  request.sampling.bad_words = {"ab", " a"};
  request.sampling.min_new_tokens = 3;
  request.sampling.stop_token_ids = {1};
  request.num_sampled = 2;
  const TokenLists lists = token_lists_of(request, std::vector<TokenId>{4}, tokenizer.get());
  EXPECT_THAT(lists.banned_runs, ElementsAre(ElementsAre(0, 1), ElementsAre(3, 1), ElementsAre(3)));
  EXPECT_THAT(lists.end_ids, ElementsAre(1, 4));
  EXPECT_EQ(lists.min_tokens, 5) << "tokens of earlier calls are told to it, too";
}

TEST(TokenLists, WordsNeedATokenizer) {
  GenerateRequest request;
  request.sampling.bad_words = {"ab"};
  EXPECT_THROW(token_lists_of(request, {}, nullptr), ConfigError);
}

}  // namespace
}  // namespace slime::engine
