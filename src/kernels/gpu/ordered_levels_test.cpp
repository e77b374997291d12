#include "kernels/gpu/ordered_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "kernels/gpu/attention_levels_for_tests.h"

namespace slime::kernels {
namespace {

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

TEST(OrderedLevels, LevelsWithoutAMaskAreDividedBesideAWindowToo) {
  const auto levels = divided_levels(kLevels, 4, 30);
  EXPECT_EQ(levels.front().pairs, kLevels[0].pairs);
  EXPECT_GT(levels.size(), kLevels.size());
  EXPECT_EQ(seen_by(levels), seen_by(kLevels));
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

int64_t padded(int64_t rows) {
  return std::max<int64_t>(128, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
}

/// Scratch that launches of sequences of `length` rows plan, in `rows` rows.
int64_t planned_scratch(int64_t rows, int64_t length, int64_t num_heads) {
  AttentionLevel level{{}, true};
  for (int64_t at = 0; at < rows; at += length) {
    const int64_t end = std::min(rows, at + length);
    level.pairs.push_back({at, end, at, end});
  }
  int64_t most = 0;
  for (const AttentionLevel& part : divided_levels({level}, ordered_rows(num_heads), 0)) {
    for (const AttentionLevel& launch : ordered_launches(part, num_heads)) {
      int64_t queries = 0, keys = 0;
      for (const AttentionPair& pair : launch.pairs) {
        queries = std::max(queries, pair.query_end - pair.query_begin);
        keys = std::max(keys, pair.key_end - pair.key_begin);
      }
      const auto pairs = static_cast<int64_t>(std::bit_ceil(launch.pairs.size()));
      most = std::max(most, 2 * num_heads * pairs * padded(queries) * padded(keys));
    }
  }
  return most;
}

TEST(OrderedLevels, WhatIsCountedIsAtLeastWhatLaunchesTake) {
  for (const int64_t heads : {1, 6, 32}) {
    const RotaryShape shape{heads, 1, 64, 0};
    for (const int64_t rows : {300, 1000, 5000, 16384, 40000}) {
      for (const int64_t length : {64, 100, 129, 2048, 5000, 40000})
        EXPECT_LE(planned_scratch(rows, length, heads), ordered_backward_bytes(shape, rows, 0))
            << heads << " heads, " << rows << " rows in " << length;
    }
  }
}

TEST(OrderedLevels, MemoryIsScratchAndOfDividedOnesSums) {
  const RotaryShape heads{32, 8, 128, 0};
  EXPECT_EQ(ordered_backward_bytes(heads, 1000, 0), 32 * 1024 * 1024 * 2);
  EXPECT_EQ(ordered_backward_bytes(heads, 4096, 0), int64_t{1} << 30);
  EXPECT_EQ(ordered_backward_bytes(heads, 16384, 0),
            (int64_t{1} << 30) + int64_t{6} * 16384 * 48 * 128);
  // A window of 512: pieces of 3,585 rows behind 511 copies.
  EXPECT_EQ(ordered_backward_bytes(heads, 4096, 512), int64_t{1} << 30);
  EXPECT_EQ(ordered_backward_bytes(heads, 7170, 512),
            (int64_t{1} << 30) + int64_t{2} * (7170 + 2 * 511) * 2 * (48 + 32) * 128);
  EXPECT_EQ(ordered_window_rows(32, 4096), 8191) << "half of the rows are no copies";
}

TEST(OrderedLevels, PairsOfOneLengthAreFewLaunches) {
  AttentionLevel level{{}, true};
  for (int64_t i = 0; i < 8; ++i)
    level.pairs.push_back({i * 2048, (i + 1) * 2048, i * 2048, (i + 1) * 2048});
  EXPECT_EQ(ordered_launches(level, 32).size(), 2U);  // four of a quarter of the scratch each
}

}  // namespace
}  // namespace slime::kernels
