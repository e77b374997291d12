#include "kernels/gpu/ordered_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace slime::kernels {
namespace {

using Seen = std::set<std::pair<int64_t, int64_t>>;

/// (row, key) pairs of the levels, each once.
Seen seen_by(const std::vector<AttentionLevel>& levels) {
  Seen seen;
  for (const AttentionLevel& level : levels) {
    std::set<int64_t> queries, keys;  // of this level: no two pairs have one
    for (const AttentionPair& pair : level.pairs) {
      EXPECT_LT(pair.query_begin, pair.query_end);
      EXPECT_LT(pair.key_begin, pair.key_end);
      for (int64_t q = pair.query_begin; q < pair.query_end; ++q)
        EXPECT_TRUE(queries.insert(q).second) << "query " << q << " twice in a level";
      for (int64_t k = pair.key_begin; k < pair.key_end; ++k)
        EXPECT_TRUE(keys.insert(k).second) << "key " << k << " twice in a level";
      for (int64_t q = pair.query_begin; q < pair.query_end; ++q) {
        for (int64_t k = pair.key_begin; k < pair.key_end; ++k) {
          if (level.causal && k - pair.key_begin > q - pair.query_begin) continue;
          EXPECT_TRUE(seen.emplace(q, k).second) << q << " sees " << k << " twice";
        }
      }
    }
  }
  return seen;
}

const std::vector<AttentionLevel> kLevels = {
    {{{0, 1, 0, 1},
      {1, 8, 1, 8},
      {8, 12, 8, 12},
      {12, 13, 12, 13},
      {13, 20, 13, 20},
      {20, 25, 20, 25}},
     true},
    {{{1, 12, 0, 1}, {13, 25, 12, 13}}, false},
    {{{8, 10, 1, 8}, {13, 20, 20, 22}, {20, 25, 13, 20}}, false},
};

TEST(OrderedLevels, PiecesSeeWhatTheLevelsSee) {
  for (const int64_t most : {1, 2, 3, 4, 7, 8, 100})
    EXPECT_EQ(seen_by(divided_levels(kLevels, most, 0)), seen_by(kLevels)) << most;
}

TEST(OrderedLevels, TheFirstLevelWritesWhatItWrote) {
  const AttentionLevel first = divided_levels(kLevels, 4, 0).front();
  EXPECT_TRUE(first.causal);
  const std::vector<AttentionPair> pieces = {{0, 1, 0, 1},     {1, 5, 1, 5},     {5, 8, 5, 8},
                                             {8, 12, 8, 12},   {12, 13, 12, 13}, {13, 17, 13, 17},
                                             {17, 20, 17, 20}, {20, 24, 20, 24}, {24, 25, 24, 25}};
  EXPECT_EQ(first.pairs, pieces);
}

TEST(OrderedLevels, NothingIsDividedThatIsShortOrHasAWindow) {
  const auto whole = divided_levels(kLevels, 13, 0);
  ASSERT_EQ(whole.size(), kLevels.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i].pairs, kLevels[i].pairs);
  const auto windowed = divided_levels({kLevels[0]}, 2, 3);
  ASSERT_EQ(windowed.size(), 1U);
  EXPECT_EQ(windowed[0].pairs, kLevels[0].pairs);
}

TEST(OrderedLevels, ALevelWithoutPairsStaysFirst) {
  const auto levels = divided_levels({{{}, true}, {{{0, 9, 9, 12}}, false}}, 4, 0);
  ASSERT_EQ(levels.size(), 4U);
  EXPECT_TRUE(levels[0].pairs.empty() && levels[0].causal);
}

TEST(OrderedLevels, APieceHasAtMostTheScratch) {
  EXPECT_EQ(ordered_rows(32), 4096);
  EXPECT_EQ(ordered_rows(33), 2048);
  EXPECT_EQ(ordered_rows(1), 16384);
  for (const int64_t heads : {1, 5, 32, 128}) {
    const int64_t rows = ordered_rows(heads);
    EXPECT_LE(heads * rows * rows * 2, kOrderedScratchBytes);
  }
}

TEST(OrderedLevels, LaunchesHaveEachPairOnceAndTheScratch) {
  AttentionLevel level{{}, true};
  for (int64_t at = 0, rows = 1; at < 200'000; at += rows, rows = (7 * rows) % 4096 + 1)
    level.pairs.push_back({at, at + rows, at, at + rows});
  std::vector<AttentionPair> all;
  for (const AttentionLevel& launch : ordered_launches(level, 32)) {
    EXPECT_TRUE(launch.causal);
    int64_t longest = 128;
    for (const AttentionPair& pair : launch.pairs)
      longest = std::max(longest, pair.query_end - pair.query_begin);
    EXPECT_LE(std::ssize(launch.pairs) * 32 * longest * longest * 2, kOrderedScratchBytes);
    all.insert(all.end(), launch.pairs.begin(), launch.pairs.end());
  }
  const auto by_begin = [](const AttentionPair& pair) { return pair.query_begin; };
  std::ranges::sort(all, {}, by_begin);
  EXPECT_EQ(all, level.pairs);
}

TEST(OrderedLevels, PairsOfOneLengthAreFewLaunches) {
  AttentionLevel level{{}, true};
  for (int64_t i = 0; i < 8; ++i)
    level.pairs.push_back({i * 2048, (i + 1) * 2048, i * 2048, (i + 1) * 2048});
  EXPECT_EQ(ordered_launches(level, 32).size(), 2U);  // four of a quarter of the scratch each
}

}  // namespace
}  // namespace slime::kernels
