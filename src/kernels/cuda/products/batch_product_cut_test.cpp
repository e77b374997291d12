#include "kernels/cuda/products/batch_product_cut.h"

#include <gtest/gtest.h>

#include "kernels/cuda/products/product_sizes_for_tests.h"

namespace slime::kernels::cuda::batch {
namespace {

constexpr int kProcessors = 132, kMostSharedBytes = 227 << 10;

void expect_to_fit(const SharedLayout& layout, const Cut& cut, int rows) {
  const int chunks = divide_up(cut.chunks, cut.parts);
  EXPECT_GE(layout.stages, std::min(2, chunks));
  EXPECT_LE(layout.bytes, kRingBytes);
  EXPECT_LE(layout.stages * layout.slot_bytes, layout.bytes);
  EXPECT_LE(SharedLayout::sums_bytes(cut, rows), layout.bytes);
  EXPECT_EQ(layout.x_begin % 1024, 0);
  EXPECT_EQ(layout.slot_bytes % 1024, 0);
  EXPECT_GE(layout.at_once, 1);
  EXPECT_LE(layout.at_once, layout.stages) << "a barrier tells of one round";
  // Of the last slab of the last stage the last group reads 64 outputs, and all all rows.
  const int last_slot = (layout.stages - 1) * layout.slot_bytes, slab = cut.slabs - 1;
  EXPECT_LE(last_slot + 128 * (cut.block_outputs() * slab + kGroupOutputs * cut.groups()),
            layout.bytes);
  EXPECT_LE(last_slot + layout.x_begin + 128 * (layout.x_rows * slab + rows), layout.bytes);
  // One block to a processor, or two.
  const bool is_alone = cut.tiles * cut.parts <= kProcessors;
  EXPECT_EQ(is_alone, 2 * layout.bytes > kMostSharedBytes) << cut.tiles << " " << cut.parts;
}

void expect_to_fit(const Cut& cut, int inputs, int outputs) {
  const int units = cut.is_pairs ? outputs / 2 : outputs;
  EXPECT_GE(cut.tiles * cut.box, units);
  EXPECT_LT((cut.tiles - 1) * cut.box, units) << "each block has outputs";
  EXPECT_EQ(cut.chunks * cut.slabs * kSlabInputs, inputs);
  EXPECT_LE(cut.parts, cut.chunks) << "each part has inputs";
  EXPECT_LE(cut.groups(), kMostGroups);
  EXPECT_EQ(cut.block_outputs() % 8, 0) << "slabs begin where the swizzle does";
  EXPECT_EQ(cut.box % kPiece, 0);
  for (int rows_there = 1; rows_there <= 64; ++rows_there) {
    const int rows = rows_there <= 8 ? 8 : rows_there <= 16 ? 16 : rows_there <= 32 ? 32 : 64;
    const SharedLayout layout(cut, rows, rows_there, kProcessors);
    EXPECT_GE(layout.x_rows, rows_there);
    EXPECT_EQ(layout.x_rows % 8, 0);
    EXPECT_LE(layout.x_rows, rows);
    expect_to_fit(layout, cut, rows);
  }
}

TEST(BatchProductCut, CoversOutputsAndInputsWithinSharedMemory) {
  for (const auto& [hidden, attended, width, heads] : kTrainedModels) {
    SCOPED_TRACE(hidden);
    expect_to_fit(cut_into_parts(attended, hidden, kProcessors), attended, hidden);
    expect_to_fit(cut_outputs(hidden, 2 * width, true, kProcessors), hidden, 2 * width);
    expect_to_fit(cut_into_parts(width, hidden, kProcessors), width, hidden);
    expect_to_fit(cut_outputs(hidden, heads, false, kProcessors), hidden, heads);
    expect_to_fit(cut_outputs(hidden, 151'936, false, kProcessors), hidden, 151'936);
  }
}

TEST(BatchProductCut, GivesNearlyEveryProcessorABlock) {
  for (const auto& [hidden, attended, width, heads] : kTrainedModels) {
    if (hidden < 896) continue;  // too few inputs to part
    const Cut cut = cut_into_parts(width, hidden, kProcessors);
    EXPECT_GE(cut.tiles * cut.parts, 0.8 * kProcessors) << hidden;
  }
}

}  // namespace
}  // namespace slime::kernels::cuda::batch
