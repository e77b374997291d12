#include "engine/step_sequences.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

/// 30 tokens, the last of which is to be computed, and with it two drafts: their keys go to two pages.
Request request_with_drafts() {
  Request request;
  request.tokens.assign(33, 7);
  request.num_computed = 30;
  request.pages = {4, 9, 2};
  return request;
}

TEST(StepSequences, OfDecodeAreTheRowsOfAChunkWithDrafts) {
  Request plain, drafted = request_with_drafts();
  plain.tokens.assign(17, 7);
  plain.num_computed = 16;
  plain.pages = {1, 3};
  const std::vector<Chunk> chunks{{&plain, 1}, {&drafted, 3, 2}, {&plain, 1}};
  const auto sequences = sequences_of(chunks, /*is_decode=*/true);
  ASSERT_EQ(sequences.size(), 5U);
  const auto rows = single_rows(sequences, 0, 100);
  ASSERT_EQ(rows.size(), 5U);
  const auto pages = [&](std::size_t i) {
    return std::vector<int32_t>(rows[i].pages.begin(), rows[i].pages.end());
  };
  EXPECT_EQ(pages(0), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(pages(1), (std::vector<int32_t>{4, 9}));
  EXPECT_EQ(pages(2), (std::vector<int32_t>{4, 9}));
  EXPECT_EQ(pages(3), (std::vector<int32_t>{4, 9, 2}));
  const std::vector<int64_t> keys{17, 31, 32, 33, 17}, new_keys{1, 1, 2, 3, 1},
      offsets{100, 102, 104, 106, 109};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].index, static_cast<int64_t>(i));
    EXPECT_EQ(rows[i].row, static_cast<int64_t>(i));
    EXPECT_EQ(rows[i].num_keys, keys[i]) << i;
    EXPECT_EQ(rows[i].num_new_keys, new_keys[i]) << i;
    EXPECT_EQ(rows[i].pages_offset, offsets[i]) << i;
  }
}

TEST(StepSequences, OfOtherStepsAreChunks) {
  Request drafted = request_with_drafts();
  const auto sequences = sequences_of(std::vector<Chunk>{{&drafted, 3, 2}}, /*is_decode=*/false);
  ASSERT_EQ(sequences.size(), 1U);
  EXPECT_EQ(sequences[0].begin, 30);
  EXPECT_EQ(sequences[0].num_rows, 3);
  EXPECT_EQ(sequences[0].num_keys(), 33);
  EXPECT_TRUE(single_rows(sequences, 0, 0).empty());
}

}  // namespace
}  // namespace slime::engine
