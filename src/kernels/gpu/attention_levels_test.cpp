#include "kernels/gpu/attention_levels.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/gpu/attention_levels_for_tests.h"

namespace slime::kernels {
namespace {

Seen seen_in_chains(const std::vector<Segment>& segments) {
  Seen seen;
  for (const Segment& segment : segments) {
    for (int64_t q = segment.begin; q < segment.end && segment.has_queries; ++q) {
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

/// Segments dealt to ranks in pieces, rows in the order of the ranks (model/context_rows.h).
std::vector<Segment> pieces_of(const std::vector<Segment>& segments, int ranks, int rank) {
  std::vector<std::vector<std::pair<std::size_t, Segment>>> of_rank(
      static_cast<std::size_t>(ranks));
  std::vector<Segment> pieces;
  std::vector<int32_t> last;
  for (const Segment& segment : segments) {
    const int64_t size = segment.end - segment.begin, count = 2 * int64_t{ranks};
    int32_t before = segment.parent < 0 ? -1 : last[static_cast<std::size_t>(segment.parent)];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = size * i / count, end = size * (i + 1) / count;
      if (begin == end) continue;
      const auto owner = static_cast<int>(i < ranks ? i : count - 1 - i);
      of_rank[static_cast<std::size_t>(owner)].push_back({pieces.size(), {begin, end, before}});
      pieces.push_back({begin, end, before, owner == rank});
      before = static_cast<int32_t>(pieces.size()) - 1;
    }
    last.push_back(before);
  }
  int64_t row = 0;
  for (const auto& own : of_rank) {
    for (const auto& [index, piece] : own) {
      pieces[index].begin = row;
      row += piece.end - piece.begin;
      pieces[index].end = row;
    }
  }
  return pieces;
}

void expect_rows_meet_once(const std::vector<AttentionLevel>& levels) {
  for (const AttentionLevel& level : levels) {
    std::set<int64_t> queries, keys;
    for (const AttentionPair& pair : level.pairs) {
      for (int64_t q = pair.query_begin; q < pair.query_end; ++q)
        EXPECT_TRUE(queries.insert(q).second) << "query " << q;
      for (int64_t k = pair.key_begin; k < pair.key_end; ++k)
        EXPECT_TRUE(keys.insert(k).second) << "key " << k;
    }
  }
}

TEST(AttentionLevels, EveryRowOfARankSeesItsChainOnceWhereverItsPiecesAre) {
  const std::vector<std::vector<Segment>> forests = {
      {{0, 16, -1}},
      {{0, 3, -1}, {3, 20, -1}},
      {{0, 9, -1}, {9, 15, 0}, {15, 28, 0}},
      {{0, 13, -1}, {13, 25, 0}, {25, 26, 1}, {26, 39, 1}, {39, 51, 0}, {51, 54, -1}, {54, 65, 5}},
  };
  for (const auto& segments : forests) {
    for (const int ranks : {2, 3}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<Segment> pieces = pieces_of(segments, ranks, rank);
        const auto levels = attention_levels(pieces, 0);
        ASSERT_TRUE(levels.has_value());
        EXPECT_EQ(seen_by(*levels), seen_in_chains(pieces));
        expect_rows_meet_once(*levels);
      }
    }
  }
}

TEST(AttentionLevels, PiecesThatTouchAreAskedTogether) {
  // Rows 0 3 | 1 2: the second rank's pieces continue one another.
  const auto first = attention_levels(pieces_of({{0, 16, -1}}, 2, 0), 0);
  EXPECT_EQ(first->size(), 3U);
  EXPECT_EQ(first->at(2).pairs, (std::vector<AttentionPair>{{4, 8, 8, 16}}));
  const auto second = attention_levels(pieces_of({{0, 16, -1}}, 2, 1), 0);
  EXPECT_EQ(second->at(0).pairs, (std::vector<AttentionPair>{{8, 16, 8, 16}}));
  EXPECT_EQ(second->at(1).pairs, (std::vector<AttentionPair>{{8, 16, 0, 4}}));
  EXPECT_EQ(second->size(), 2U);
}

TEST(AttentionLevels, ARankMayHaveNoQueries) {
  EXPECT_TRUE(attention_levels({{0, 4, -1, false}}, 0)->at(0).pairs.empty());
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
