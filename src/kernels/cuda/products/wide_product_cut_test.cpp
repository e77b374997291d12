#include "kernels/cuda/products/wide_product_cut.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace slime::kernels::cuda::wide {
namespace {

constexpr int kProcessors = 132, kMostSharedBytes = 227 << 10;

void expect_to_fit(const Cut& cut, int chunks, int outputs) {
  EXPECT_GE(cut.tiles * cut.outputs, outputs);
  EXPECT_LT((cut.tiles - 1) * cut.outputs, outputs) << "each block has outputs";
  EXPECT_GE(cut.parts, 1);
  EXPECT_LE(cut.parts, chunks) << "each part has inputs";
  if (cut.parts > 1) {
    EXPECT_LE(cut.tiles * cut.parts, kProcessors);
  }
  for (const int rows : {128, 256}) {
    const SharedLayout layout(rows, cut.outputs, divide_up(chunks, cut.parts));
    EXPECT_GE(layout.stages, std::min(3, divide_up(chunks, cut.parts)));
    EXPECT_LE(layout.bytes, kMostSharedBytes);
    EXPECT_EQ(layout.x_bytes % 1024, 0);
    EXPECT_EQ(layout.slot_bytes % 1024, 0);
    const int pitch = SharedLayout::pitch(cut.outputs / 2);
    EXPECT_LE(2 * rows * pitch, layout.slot_bytes) << "results take the place of a stage";
    EXPECT_EQ(pitch % 8, 4) << "rows that are written at once lie in different banks";
  }
}

TEST(WideProductCut, CoversOutputsAndInputsWithinSharedMemory) {
  for (const int outputs : {8, 48, 64, 576, 1024, 2560, 4096, 6144, 8576, 19456, 28672, 151'936}) {
    for (const int inputs : {64, 128, 896, 1024, 2560, 4096, 9728, 28672}) {
      SCOPED_TRACE(outputs);
      SCOPED_TRACE(inputs);
      const int chunks = inputs / kSlabInputs;
      expect_to_fit(cut_wide(chunks, outputs, false, kProcessors), chunks, outputs);
      expect_to_fit(cut_wide(chunks, outputs, true, kProcessors), chunks, outputs);
    }
  }
}

/// Measured on an H200: outputs of a block and parts that were fastest.
TEST(WideProductCut, IsTheOneThatMeasuredFastest) {
  struct Best {
    int inputs, outputs, of_block, parts;
  };
  constexpr Best kWhole[] = {{2560, 19456, 152, 1}, {4096, 28672, 112, 1}};
  constexpr Best kInParts[] = {{9728, 2560, 80, 4}, {12288, 4096, 64, 2}};
  const auto expect = [](const Best& best, bool has_parts) {
    const Cut cut = cut_wide(best.inputs / kSlabInputs, best.outputs, has_parts, kProcessors);
    EXPECT_EQ(cut.outputs, best.of_block) << best.outputs;
    EXPECT_EQ(cut.parts, best.parts) << best.outputs;
  };
  for (const Best& best : kWhole) expect(best, false);
  for (const Best& best : kInParts) expect(best, true);
}

/// Gate and up of models people train: 128 blocks, one to a processor.
TEST(WideProductCut, LeavesFewProcessorsIdle) {
  const auto expect = [](int inputs, int outputs, int of_block) {
    const Cut cut = cut_wide(inputs / kSlabInputs, outputs, false, kProcessors);
    EXPECT_EQ(cut.outputs, of_block) << outputs;
    EXPECT_EQ(cut.tiles, 128) << outputs;
    EXPECT_EQ(cut.parts, 1) << outputs;
  };
  expect(1024, 6144, 48);
  expect(2048, 12288, 96);
  expect(2560, 19456, 152);
  expect(4096, 24576, 192);
}

}  // namespace
}  // namespace slime::kernels::cuda::wide
