#include "kernels/gpu/sparse.h"

#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

TEST(SparseDecode, SplitsChosenTokensWhereFewRowsRun) {
  EXPECT_GE(units_of_chosen(1, 128, 2048, 132), 8);
  EXPECT_LE(units_of_chosen(1, 128, 2048, 132), 16);  // of 8 x 16 thread blocks all run at once
  EXPECT_GT(units_of_chosen(1, 16, 2048, 132), 16);
  EXPECT_EQ(units_of_chosen(1, 16, 32, 132), 1);  // one stage of the pipeline
  EXPECT_EQ(units_of_chosen(16, 128, 2048, 132), 1);
  EXPECT_EQ(units_of_chosen(256, 16, 2048, 132), 1);
  // Whole rows would be two waves, the second one of 28 thread blocks.
  EXPECT_GT(units_of_chosen(20, 128, 2048, 132), 1);
}

TEST(SparseDecode, TakesMemoryByTheBoundOfKeys) {
  EXPECT_EQ(most_chosen(2048, 500), 500);
  EXPECT_EQ(most_chosen(2048, 5000), 2048);
  EXPECT_EQ(score_stride(5001), 5004);
  // 256 rows of 16 heads are not split: scores and choices of 4 bytes each.
  EXPECT_EQ(
      sparse_decode_bytes(
          {.num_rows = 256, .most_keys = 5001, .count = 2048, .num_heads = 16, .rank = 512}, 132),
      4 * 256 * (5004 + 2048));
  // Of a split row, partial results of 512 + 2 numbers of each head.
  const int64_t units = units_of_chosen(1, 16, 2048, 132);
  EXPECT_EQ(
      sparse_decode_bytes(
          {.num_rows = 1, .most_keys = 4096, .count = 2048, .num_heads = 16, .rank = 512}, 132),
      4 * (4096 + 2048 + units * 16 * 514));
}

}  // namespace
}  // namespace slime::kernels
