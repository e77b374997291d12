#include "core/token_span.h"

#include <gtest/gtest.h>

#include <set>

namespace slime {
namespace {

std::shared_ptr<const Attachment> picture(uint64_t key) {
  return std::make_shared<Attachment>(Attachment{.key = key, .type = "image/png"});
}

std::vector<TokenKey> keys_of(const std::vector<TokenId>& ids, const std::vector<MediaSpan>& media,
                              uint64_t salt = 0) {
  std::vector<TokenKey> keys;
  extend_keys(keys, ids, media, salt);
  return keys;
}

TEST(TokenKeys, OfTextAreItsIds) {
  EXPECT_EQ(keys_of({5, 9, 0, 2147483647}, {}), (std::vector<TokenKey>{5, 9, 0, 2147483647}));
}

TEST(TokenKeys, OfASpanAreThoseOfItsRows) {
  const std::vector<TokenId> ids = {5, 0, 0, 0, 7};
  const auto first = keys_of(ids, {{1, 4, picture(11)}});
  EXPECT_EQ(first[0], 5);
  EXPECT_EQ(first[4], 7);
  EXPECT_EQ(std::set<TokenKey>(first.begin() + 1, first.begin() + 4).size(), 3U);
  EXPECT_GE(first[1], TokenKey{1} << 63);  // no id
  EXPECT_EQ(first, keys_of(ids, {{1, 4, picture(11)}}));
  const auto second = keys_of(ids, {{1, 4, picture(12)}});
  for (int i = 1; i < 4; ++i) EXPECT_NE(first[i], second[i]);
}

TEST(TokenKeys, AreTheSameMadeAtOnceOrBitByBit) {
  const std::vector<TokenId> ids = {5, 0, 0, 0, 7, 8};
  const std::vector<MediaSpan> media = {{1, 3, picture(11)}, {3, 4, picture(12)}};
  std::vector<TokenKey> keys;
  for (std::size_t size : {0, 2, 3, 6}) extend_keys(keys, std::span(ids).first(size), media, 77);
  EXPECT_EQ(keys, keys_of(ids, media, 77));
  for (int i = 1; i < 6; ++i) EXPECT_EQ(keys[i], key_at(ids, media, i));
}

TEST(TokenKeys, OfAnotherSaltShareNotTheFirst) {
  const std::vector<TokenId> ids = {5, 9, 3};
  EXPECT_EQ(key_salt(""), 0U);
  std::set<TokenKey> firsts = {keys_of(ids, {})[0]};
  for (const uint64_t salt : {key_salt("a"), key_salt("b"), key_salt("", 100), key_salt("a", 100)})
    firsts.insert(keys_of(ids, {}, salt)[0]);
  EXPECT_EQ(firsts.size(), 5U);
}

TEST(CommonPrefix, EndsWhereAttachmentsDiffer) {
  const std::vector<TokenId> a = {5, 0, 0, 7, 8}, b = {5, 0, 0, 7, 9};
  const std::vector<MediaSpan> one = {{1, 3, picture(11)}}, other = {{1, 3, picture(12)}};
  EXPECT_EQ(common_prefix(a, {}, b, {}), 4);
  EXPECT_EQ(common_prefix(a, one, b, one), 4);
  EXPECT_EQ(common_prefix(a, one, b, other), 1);
  EXPECT_EQ(common_prefix(a, one, b, {}), 1);
}

TEST(MediaSpans, AreInOrderAndWithinTheTokens) {
  const auto what = picture(1);
  EXPECT_EQ(problem_of(std::vector<MediaSpan>{{0, 2, what}, {2, 3, what}}, 3), "");
  EXPECT_NE(problem_of(std::vector<MediaSpan>{{0, 2, what}, {1, 3, what}}, 3), "");
  EXPECT_NE(problem_of(std::vector<MediaSpan>{{0, 2, what}}, 1), "");
  EXPECT_NE(problem_of(std::vector<MediaSpan>{{1, 1, what}}, 3), "");
  EXPECT_NE(problem_of(std::vector<MediaSpan>{{-1, 1, what}}, 3), "");
  EXPECT_NE(problem_of(std::vector<MediaSpan>{{0, 1, nullptr}}, 3), "");
}

TEST(MediaRuns, AreThePartsOfSpansInAChunk) {
  std::vector<MediaRun> runs;
  append_runs(runs, std::vector<MediaSpan>{{2, 6, picture(1)}, {8, 9, picture(2)}}, 4, 9, 100);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].row, 100);
  EXPECT_EQ(runs[0].first, 2);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[1].row, 104);
  EXPECT_EQ(runs[1].first, 0);
  EXPECT_EQ(runs[1].count, 1);
}

}  // namespace
}  // namespace slime
