#include "kernels/cuda/products/wide_product_tiling.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace slime::kernels::cuda::wide {
namespace {

constexpr int kProcessors = 132, kMostSharedBytes = 227 << 10;

void expect_to_fit(const Tiling& tiling, int k_tiles, int outputs) {
  EXPECT_GE(tiling.tiles * tiling.outputs, outputs);
  EXPECT_LT((tiling.tiles - 1) * tiling.outputs, outputs) << "each block has outputs";
  EXPECT_GE(tiling.splits, 1);
  EXPECT_LE(tiling.splits, k_tiles) << "each split has inputs";
  if (tiling.splits > 1) {
    EXPECT_LE(tiling.tiles * tiling.splits, kProcessors);
  }
  for (const int rows : {128, 256}) {
    const SharedLayout layout(rows, tiling.outputs, divide_up(k_tiles, tiling.splits));
    EXPECT_GE(layout.stages, std::min(3, divide_up(k_tiles, tiling.splits)));
    EXPECT_LE(layout.bytes, kMostSharedBytes);
    EXPECT_EQ(layout.x_bytes % 1024, 0);
    EXPECT_EQ(layout.stage_stride % 1024, 0);
    const int pitch = SharedLayout::pitch(tiling.outputs / 2);
    EXPECT_LE(2 * rows * pitch, layout.stage_stride) << "results overlay a stage";
    EXPECT_EQ(pitch % 8, 4) << "rows that are written at once lie in different banks";
  }
}

TEST(WideProductCut, CoversOutputsAndInputsWithinSharedMemory) {
  for (const int outputs : {8, 48, 64, 576, 1024, 2560, 4096, 6144, 8576, 19456, 28672, 151'936}) {
    for (const int inputs : {64, 128, 896, 1024, 2560, 4096, 9728, 28672}) {
      SCOPED_TRACE(outputs);
      SCOPED_TRACE(inputs);
      const int k_tiles = inputs / kSlabInputs;
      expect_to_fit(wide_tiling(k_tiles, outputs, false, kProcessors), k_tiles, outputs);
      expect_to_fit(wide_tiling(k_tiles, outputs, true, kProcessors), k_tiles, outputs);
    }
  }
}

/// Measured on an H200: outputs of a thread block and splits that were fastest.
TEST(WideProductCut, IsTheOneThatMeasuredFastest) {
  struct Best {
    int inputs, outputs, of_block, splits;
  };
  constexpr Best kWhole[] = {{2560, 19456, 152, 1}, {4096, 28672, 112, 1}};
  constexpr Best kSplit[] = {{9728, 2560, 80, 4}, {12288, 4096, 64, 2}};
  const auto expect = [](const Best& best, bool is_split_k) {
    const Tiling tiling =
        wide_tiling(best.inputs / kSlabInputs, best.outputs, is_split_k, kProcessors);
    EXPECT_EQ(tiling.outputs, best.of_block) << best.outputs;
    EXPECT_EQ(tiling.splits, best.splits) << best.outputs;
  };
  for (const Best& best : kWhole) expect(best, false);
  for (const Best& best : kSplit) expect(best, true);
}

/// Gate and up of models people train: 128 thread blocks, one to a multiprocessor.
TEST(WideProductCut, LeavesFewProcessorsIdle) {
  const auto expect = [](int inputs, int outputs, int of_block) {
    const Tiling tiling = wide_tiling(inputs / kSlabInputs, outputs, false, kProcessors);
    EXPECT_EQ(tiling.outputs, of_block) << outputs;
    EXPECT_EQ(tiling.tiles, 128) << outputs;
    EXPECT_EQ(tiling.splits, 1) << outputs;
  };
  expect(1024, 6144, 48);
  expect(2048, 12288, 96);
  expect(2560, 19456, 152);
  expect(4096, 24576, 192);
}

}  // namespace
}  // namespace slime::kernels::cuda::wide
