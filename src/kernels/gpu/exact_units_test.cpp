#include "kernels/gpu/exact_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/divide_up.h"

namespace slime::kernels {
namespace {

using testing::ElementsAre;

TEST(ExactUnits, RunsEndAtMultiplesOfAKeyTile) {
  const std::vector<ExactSequence> sequences{{7, 90, 140, 3}};  // positions 50 .. 139
  const ExactPlan plan = plan_exact(sequences, 20, 4, 128);
  EXPECT_THAT(plan.first_row_R, ElementsAre(7, 21, 85));
  EXPECT_THAT(plan.num_rows_R, ElementsAre(14, 64, 12));
  EXPECT_THAT(plan.num_keys_R, ElementsAre(64, 128, 140));
  EXPECT_THAT(plan.entry_starts, ElementsAre(3, 3, 3, 20));
  // 56, 256 and 48 pairs of row and head, the run with the most keys first.
  EXPECT_THAT(plan.run_U, ElementsAre(2, 1, 1, 0));
  EXPECT_THAT(plan.tile_U, ElementsAre(0, 0, 1, 0));
}

TEST(ExactUnits, ARowOfDecodeIsARunOfItsOwn) {
  const std::vector<ExactSequence> sequences{{0, 1, 64, 0}, {1, 1, 65, 4}};
  const ExactPlan plan = plan_exact(sequences, 9, 1, 64);
  EXPECT_THAT(plan.num_rows_R, ElementsAre(1, 1));
  EXPECT_THAT(plan.num_keys_R, ElementsAre(64, 65));
  EXPECT_THAT(plan.run_U, ElementsAre(1, 0));
}

/// What a row meets, whatever chunk it is in: the number of key tiles, and each of its rows times heads once.
TEST(ExactUnits, WhatARowSeesDependsOnItsPositionAlone) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    const int64_t group = 1 + below(8), tile = exact_tile(128, group);
    std::vector<ExactSequence> sequences;
    int64_t row = 0, entry = 0;
    for (int64_t s = 0; s < 1 + below(5); ++s) {
      const int64_t rows = 1 + below(300), keys = rows + below(400);
      sequences.push_back({row, rows, keys, entry});
      row += rows;
      entry += divide_up(keys, int64_t{16});
    }
    const ExactPlan plan = plan_exact(sequences, entry, group, tile);
    ASSERT_EQ(plan.entry_starts.size(), plan.first_row_R.size() + 1);
    std::map<int64_t, int64_t> tiles_of_row;  // of keys
    for (std::size_t run = 0; run < plan.first_row_R.size(); ++run) {
      for (int64_t i = 0; i < plan.num_rows_R[run]; ++i)
        EXPECT_TRUE(tiles_of_row
                        .emplace(plan.first_row_R[run] + i,
                                 divide_up(int64_t{plan.num_keys_R[run]}, kExactKeyTile))
                        .second);
    }
    for (const ExactSequence& sequence : sequences) {
      for (int64_t i = 0; i < sequence.num_rows; ++i) {
        const int64_t position = sequence.num_keys - sequence.num_rows + i;
        EXPECT_EQ(tiles_of_row.at(sequence.first_row + i), position / kExactKeyTile + 1);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(tiles_of_row.size()), row);
    std::vector<int64_t> pairs(plan.first_row_R.size());
    for (std::size_t u = 0; u < plan.run_U.size(); ++u) {
      EXPECT_EQ(plan.tile_U[u] * tile, pairs[plan.run_U[u]]) << "tiles of a run come in order";
      pairs[plan.run_U[u]] += tile;
      if (u == 0) continue;
      EXPECT_GE(plan.num_keys_R[plan.run_U[u - 1]], plan.num_keys_R[plan.run_U[u]]);
    }
    for (std::size_t run = 0; run < pairs.size(); ++run)
      EXPECT_EQ(pairs[run], round_up(plan.num_rows_R[run] * group, tile));
  }
}

TEST(ExactUnits, SegmentsSeeTheirAncestorsAndThemselves) {
  const ExactTree tree = exact_tree({{0, 3, -1}, {3, 5, 0}, {5, 6, 1}, {6, 8, 0}});
  EXPECT_THAT(tree.rows, ElementsAre(0, 1, 2,           // the prompt
                                     0, 1, 2, 3, 4,     // a response
                                     0, 1, 2, 3, 4, 5,  // what goes on behind it
                                     0, 1, 2, 6, 7));
  EXPECT_THAT(tree.sequences, ElementsAre(ExactSequence{0, 3, 3, 0}, ExactSequence{3, 2, 5, 3},
                                          ExactSequence{5, 1, 6, 8}, ExactSequence{6, 2, 5, 14}));
}

TEST(ExactUnits, SegmentsWithoutQueriesAreSeenOnly) {
  const ExactTree tree = exact_tree({{0, 2, -1, false}, {2, 3, 0}});
  EXPECT_THAT(tree.rows, ElementsAre(0, 1, 2));
  EXPECT_THAT(tree.sequences, ElementsAre(ExactSequence{2, 1, 3, 0}));
}

}  // namespace
}  // namespace slime::kernels
