#include "kernels/gpu/mapped_pieces.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace slime::kernels {
namespace {

using Range = std::pair<int64_t, int64_t>;

std::vector<Range> ranges_of(int64_t size, bool one_by_one) {
  std::vector<Range> ranges;
  EXPECT_EQ(over_pieces(size, 10, one_by_one, 0,
                        [&](int64_t offset, int64_t bytes) {
                          ranges.emplace_back(offset, bytes);
                          return 0;
                        }),
            0);
  return ranges;
}

TEST(MappedPieces, AreOneCallOrACallForEach) {
  EXPECT_EQ(ranges_of(25, false), (std::vector<Range>{{0, 25}}));
  EXPECT_EQ(ranges_of(25, true), (std::vector<Range>{{0, 10}, {10, 10}, {20, 5}}));
  EXPECT_EQ(ranges_of(20, true), (std::vector<Range>{{0, 10}, {10, 10}}));
  EXPECT_EQ(ranges_of(7, true), (std::vector<Range>{{0, 7}}));
}

/// A driver as AMD's of ROCm 6: a call for several mappings fails and gives nothing back.
TEST(MappedPieces, OneByOneAllOfThemGoBackToADriverThatTakesNoMoreThanOne) {
  int64_t mapped = 25;
  const auto unmap = [&](int64_t, int64_t bytes) {
    if (bytes > 10) return 1;
    mapped -= bytes;
    return 0;
  };
  EXPECT_EQ(over_pieces(25, 10, false, 0, unmap), 1);
  EXPECT_EQ(mapped, 25);
  EXPECT_EQ(over_pieces(25, 10, true, 0, unmap), 0);
  EXPECT_EQ(mapped, 0);
}

TEST(MappedPieces, TheFirstProblemIsToldAndTheOthersAreUnmappedAllTheSame) {
  int calls = 0;
  EXPECT_EQ(over_pieces(25, 10, true, 0,
                        [&](int64_t offset, int64_t) {
                          ++calls;
                          return offset == 0 ? 7 : offset == 10 ? 8 : 0;
                        }),
            7);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace slime::kernels
