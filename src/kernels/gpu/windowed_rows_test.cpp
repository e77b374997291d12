#include "kernels/gpu/windowed_rows.h"

#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

using Rows = std::vector<int64_t>;

TEST(WindowedRows, HaveCopiesOfWhatTheWindowReaches) {
  const auto rows = windowed_rows({{0, 4, -1}, {4, 6, 0}, {6, 8, 0}}, 3);
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->row_G, (Rows{0, 1, 2, 3, 2, 3, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(rows->place_T, (Rows{0, 1, 2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(rows->copy_P, (Rows{4, 5, 8, 9}));
  const std::vector<AttentionPair> pairs{{0, 4, 0, 4}, {4, 8, 4, 8}, {8, 12, 8, 12}};
  EXPECT_EQ(rows->level.pairs, pairs);
  EXPECT_TRUE(rows->level.causal);
}

TEST(WindowedRows, GoOnIntoGrandparents) {
  const auto rows = windowed_rows({{0, 3, -1}, {3, 4, 0}, {4, 6, 1}}, 4);
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->row_G, (Rows{0, 1, 2, 0, 1, 2, 3, 1, 2, 3, 4, 5}));
}

TEST(WindowedRows, OfAWindowOfOneAreTheBatchItself) {
  const auto rows = windowed_rows({{0, 3, -1}, {3, 5, 0}}, 1);
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->row_G, (Rows{0, 1, 2, 3, 4}));
  EXPECT_TRUE(rows->copy_P.empty());
}

TEST(WindowedRows, OfDividedSegmentsAreShortSequences) {
  const std::vector<Segment> divided = divided_segments({{0, 5, -1}, {5, 7, 0}, {7, 8, -1}}, 2);
  ASSERT_EQ(divided.size(), 5U);
  const std::vector<int32_t> parents{-1, 0, 1, 2, -1};
  for (std::size_t i = 0; i < divided.size(); ++i) EXPECT_EQ(divided[i].parent, parents[i]) << i;
  const auto rows = windowed_rows(divided, 2);
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->row_G, (Rows{0, 1, 1, 2, 3, 3, 4, 4, 5, 6, 7}));
}

TEST(WindowedRows, AreNoneWhereSegmentsAreOnlyLookedAt) {
  EXPECT_FALSE(windowed_rows({{0, 3, -1, false}, {3, 5, 0}}, 2).has_value());
}

}  // namespace
}  // namespace slime::kernels
