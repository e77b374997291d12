#include "router/prefix_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace slime::router {
namespace {

constexpr EngineId kA{1}, kB{2};

int64_t matched(PrefixMap& map, const std::vector<TokenKey>& tokens, EngineId engine) {
  for (const auto& [id, num_tokens] : map.match(tokens))
    if (id == engine) return num_tokens;
  return 0;
}

std::vector<TokenKey> counting(TokenKey count) {
  std::vector<TokenKey> tokens(static_cast<std::size_t>(count));
  for (TokenKey i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = i;
  return tokens;
}

TEST(PrefixMap, TheSamePromptMatchesWholeAndALongerOneToItsLastWholeBlock) {
  PrefixMap map(1000);
  map.remember(counting(37), kA);
  EXPECT_EQ(matched(map, counting(37), kA), 37);
  EXPECT_EQ(matched(map, counting(60), kA), 32);
  EXPECT_EQ(matched(map, counting(20), kA), 16);
  EXPECT_EQ(matched(map, counting(37), kB), 0);
  map.forget(kA);
  EXPECT_EQ(matched(map, counting(37), kA), 0);
}

TEST(PrefixMap, SpansOfOneLengthWithOtherAttachmentsShareTheTextBeforeThem) {
  const std::vector<TokenId> ids(64, 0);
  const auto keys_of = [&](uint64_t key) {
    std::vector<TokenKey> keys;
    const auto what = std::make_shared<Attachment>(Attachment{.key = key});
    extend_keys(keys, ids, std::vector<MediaSpan>{{32, 60, what}}, 0);
    return keys;
  };
  PrefixMap map(1000);
  map.remember(keys_of(1), kA);
  EXPECT_EQ(matched(map, keys_of(1), kA), 64);
  EXPECT_EQ(matched(map, keys_of(2), kA), 32);
}

TEST(PrefixMap, WhatIsNotAskedForGoesAndTheRestStays) {
  PrefixMap map(100);
  const std::vector<TokenKey> kept = counting(32);
  map.remember(kept, kA);
  map.remember(std::vector<TokenKey>{7, 8, 9}, kA);
  for (TokenKey i = 0; i < 1000; ++i) {
    map.remember(std::vector<TokenKey>{1'000'000 + i}, kB);
    if (i % 20 == 0) {
      EXPECT_EQ(matched(map, kept, kA), 32) << i;
    }
  }
  EXPECT_EQ(matched(map, {7, 8, 9}, kA), 0);
}

/// Random sequences over two tokens, so that many share beginnings.
TEST(PrefixMap, MatchesWhatAComparisonOfAllSequencesFinds) {
  std::mt19937 chance(5);
  PrefixMap map(1'000'000);
  std::map<EngineId, std::vector<std::vector<TokenKey>>> seen;
  for (int i = 0; i < 300; ++i) {
    std::vector<TokenKey> tokens = counting(static_cast<TokenKey>(1 + chance() % 80));
    for (TokenKey& token : tokens)
      if (chance() % 30 == 0) token = -token;
    for (const EngineId engine : {kA, kB}) {
      std::size_t best = 0;
      for (const auto& other : seen[engine]) {
        const auto end = std::ranges::mismatch(tokens, other).in1;
        const auto common = static_cast<std::size_t>(end - tokens.begin());
        best = std::max(best, other == tokens ? common : common - common % 16);
      }
      EXPECT_EQ(matched(map, tokens, engine), static_cast<int64_t>(best)) << i;
    }
    const EngineId engine = chance() % 2 == 0 ? kA : kB;
    map.remember(tokens, engine);
    seen[engine].push_back(tokens);
  }
}

}  // namespace
}  // namespace slime::router
