#include "model/context_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/unconnected_group.h"

namespace slime::model {
namespace {

comm::Mesh mesh_of(const comm::ParallelLayout& layout, int rank) {
  return comm::Mesh(layout, rank, [rank](comm::Axis, const std::vector<int>& members) {
    return std::make_unique<comm::UnconnectedGroup>(rank, static_cast<int>(members.size()));
  });
}

TokenBatch batch_of(std::vector<Segment> segments) {
  const int64_t rows = segments.back().end;
  return {at::arange(rows, at::kLong) * 10, at::arange(rows, at::kLong), std::move(segments)};
}

std::vector<int64_t> numbers(const Tensor& x) {
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

using Numbers = std::vector<int64_t>;

TEST(ContextRows, OfOneRankAreTheBatch) {
  const TokenBatch batch = batch_of({{0, 3, -1}, {3, 5, 0}});
  const ContextRows rows(batch, comm::Mesh::single());
  EXPECT_EQ(rows.own.num_tokens(), 5);
  EXPECT_EQ(numbers(rows.place_T), (Numbers{0, 1, 2, 3, 4}));
}

TEST(ContextRows, ARankHasTwoPiecesOfEachSegment) {
  const comm::Mesh first = mesh_of({.cp = 2}, 0), second = mesh_of({.cp = 2}, 1);
  const TokenBatch batch = batch_of({{0, 8, -1}});
  EXPECT_EQ(numbers(ContextRows(batch, first).own_L), (Numbers{0, 1, 6, 7}));
  EXPECT_EQ(numbers(ContextRows(batch, second).own_L), (Numbers{2, 3, 4, 5}));
}

TEST(ContextRows, OrARunOfTheBatch) {
  const comm::Mesh second = mesh_of({.cp = 2, .contiguous_context = true}, 1);
  const ContextRows rows(batch_of({{0, 3, -1}, {3, 8, 0}}), second);
  EXPECT_EQ(numbers(rows.own_L), (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(numbers(rows.own.ids_T), (Numbers{40, 50, 60, 70}));
}

/// Whatever the sizes: each row of the batch has one rank, and the chain of pieces in front of a row
/// is the chain of rows in front of it in the batch.
TEST(ContextRows, KeepTheChainsOfTheBatch) {
  const TokenBatch batch = batch_of({{0, 5, -1}, {5, 6, 0}, {6, 13, 0}, {13, 15, 2}, {15, 31, -1}});
  for (const bool is_contiguous : {false, true}) {
    for (const int ranks : {2, 3, 8}) {
      const comm::ParallelLayout layout{.cp = ranks, .contiguous_context = is_contiguous};
      std::vector<int64_t> gathered;  // row of the batch of each gathered row
      std::vector<Segment> pieces;
      int64_t num_queries = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const comm::Mesh mesh = mesh_of(layout, rank);
        const ContextRows rows(batch, mesh);
        EXPECT_EQ(rows.of_rank[rank].begin, static_cast<int64_t>(gathered.size()));
        const Numbers own = numbers(rows.own_L);
        gathered.insert(gathered.end(), own.begin(), own.end());
        pieces = rows.pieces;
        for (const Segment& piece : pieces)
          num_queries += piece.has_queries ? piece.end - piece.begin : 0;
      }
      EXPECT_EQ(num_queries, batch.num_tokens());
      ASSERT_EQ(gathered.size(), 31u);
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        std::vector<int64_t> chain;  // of rows of the batch, nearest first
        for (auto i = static_cast<int32_t>(p); i >= 0; i = pieces[i].parent) {
          for (int64_t row = pieces[i].end - 1; row >= pieces[i].begin; --row)
            chain.push_back(gathered[row]);
        }
        const int64_t last = chain.front();
        std::vector<int64_t> expected;
        auto s = static_cast<int32_t>(
            std::ranges::find_if(batch.segments, [&](const Segment& x) { return last < x.end; }) -
            batch.segments.begin());
        for (int64_t row = last; s >= 0; s = batch.segments[s].parent) {
          row = expected.empty() ? last : batch.segments[s].end - 1;
          for (; row >= batch.segments[s].begin; --row) expected.push_back(row);
        }
        EXPECT_EQ(chain, expected);
      }
    }
  }
}

}  // namespace
}  // namespace slime::model
