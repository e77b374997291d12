#include "kernels/gpu/attention_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace slime::kernels {
namespace {

using Seen = std::set<std::pair<int64_t, int64_t>>;

/// (row, key) pairs of the levels; a pair that two levels have is an error.
Seen seen_by(const std::vector<AttentionLevel>& levels) {
  Seen seen;
  for (const AttentionLevel& level : levels) {
    for (const AttentionPair& pair : level.pairs) {
      for (int64_t q = pair.query_begin; q < pair.query_end; ++q) {
        const int64_t visible = level.causal ? q - pair.query_begin + 1 : pair.key_end;
        for (int64_t k = pair.key_begin; k < std::min(pair.key_end, pair.key_begin + visible); ++k)
          EXPECT_TRUE(seen.emplace(q, k).second) << q << " sees " << k << " twice";
      }
    }
  }
  return seen;
}

Seen seen_in_chains(const std::vector<Segment>& segments) {
  Seen seen;
  for (const Segment& segment : segments) {
    for (int64_t q = segment.begin; q < segment.end; ++q) {
      for (int64_t k = segment.begin; k <= q; ++k) seen.emplace(q, k);
      for (int32_t i = segment.parent; i >= 0; i = segments[static_cast<std::size_t>(i)].parent) {
        const Segment& ancestor = segments[static_cast<std::size_t>(i)];
        for (int64_t k = ancestor.begin; k < ancestor.end; ++k) seen.emplace(q, k);
      }
    }
  }
  return seen;
}

TEST(AttentionLevels, EveryRowSeesItsChainOnce) {
  const std::vector<std::vector<Segment>> forests = {
      {{0, 4, -1}},
      {{0, 4, -1}, {4, 5, -1}, {5, 9, -1}},
      {{0, 3, -1}, {3, 5, 0}, {5, 8, 0}},
      {{0, 3, -1}, {3, 5, 0}, {5, 6, 1}, {6, 9, 1}, {9, 11, 0}, {11, 14, -1}, {14, 15, 5}},
      {{0, 1, -1}, {1, 2, 0}, {2, 3, 1}, {3, 4, 2}},
  };
  for (const auto& segments : forests) {
    const auto levels = attention_levels(segments, 0);
    ASSERT_TRUE(levels.has_value());
    EXPECT_EQ(seen_by(*levels), seen_in_chains(segments));
  }
}

TEST(AttentionLevels, ThereIsOneLevelPerDepth) {
  EXPECT_EQ(attention_levels({{0, 4, -1}, {4, 9, -1}}, 0)->size(), 1U);
  EXPECT_EQ(attention_levels({{0, 3, -1}, {3, 5, 0}, {5, 8, 0}}, 0)->size(), 2U);
  EXPECT_EQ(attention_levels({{0, 3, -1}, {3, 5, 0}, {5, 8, 1}}, 0)->size(), 3U);
}

TEST(AttentionLevels, DescendantsThatDoNotFollowAreRefused) {
  EXPECT_FALSE(attention_levels({{0, 3, -1}, {3, 5, -1}, {5, 8, 0}}, 0).has_value());
}

TEST(AttentionLevels, AWindowMayEndInsideItsOwnSegmentOnly) {
  EXPECT_TRUE(attention_levels({{0, 30, -1}, {30, 90, -1}}, 8).has_value());
  EXPECT_TRUE(attention_levels({{0, 3, -1}, {3, 5, 0}}, 5).has_value());
  EXPECT_FALSE(attention_levels({{0, 3, -1}, {3, 5, 0}}, 4).has_value());
}

}  // namespace
}  // namespace slime::kernels
