#include "kernels/cuda/products/narrow_product_cut.h"

#include <gtest/gtest.h>

#include "kernels/cuda/products/product_sizes_for_tests.h"

namespace slime::kernels::cuda::narrow {
namespace {

constexpr int kProcessors = 132;

void expect_to_fit(const SharedLayout& layout, const Cut& cut) {
  EXPECT_GE(layout.stages, std::min(2, cut.chunks));
  EXPECT_GE(layout.at_once, 1);
  EXPECT_LE(layout.at_once, layout.stages) << "a barrier tells of one round";
  EXPECT_GE(layout.slot_bytes, SharedLayout::stage_bytes(cut));
  EXPECT_EQ(layout.slot_bytes % 1024, 0);
  EXPECT_LE(layout.stages * layout.slot_bytes, layout.x_begin);
  EXPECT_EQ(layout.x_begin % 16, 0);
  EXPECT_EQ(layout.norm_begin % 8, 0);
  EXPECT_EQ(layout.sums_begin % 8, 0);
  EXPECT_GE(layout.sums_begin, layout.norm_begin);
  // The last tile of the last slab reads beyond the ring.
  EXPECT_LE(layout.x_begin + 128 * (cut.multiplied_outputs() - cut.block_outputs()),
            layout.sums_begin);
  EXPECT_LE(layout.bytes, kSharedBytes);
}

void expect_to_fit(int inputs, int outputs, bool is_pairs, bool has_norm) {
  const Cut cut = cut_narrow(inputs, outputs, is_pairs, kProcessors);
  const int units = is_pairs ? outputs / 2 : outputs;
  EXPECT_GE(cut.blocks * cut.box, units);
  EXPECT_LT((cut.blocks - 1) * cut.box, units) << "each block has outputs";
  EXPECT_EQ(cut.chunks * cut.slabs * kSlabInputs, inputs);
  EXPECT_LE(cut.tiles(), kMostTiles);
  EXPECT_GE(cut.multiplied_outputs(), cut.block_outputs());
  EXPECT_EQ(cut.parts() * cut.groups(), kWarps);
  EXPECT_EQ(cut.slabs * kSlabInputs / kStepInputs % cut.parts(), 0) << "warps share inputs evenly";
  for (int rows = 1; rows <= kMostRows; ++rows)
    if (2 * inputs * rows <= kMostInputBytes) expect_to_fit(SharedLayout(cut, rows, has_norm), cut);
}

void expect_chain_to_fit(const ProductSizes& sizes) {
  SCOPED_TRACE(sizes.hidden);
  expect_to_fit(sizes.attended, sizes.hidden, false, false);
  expect_to_fit(sizes.hidden, 2 * sizes.width, true, true);
  expect_to_fit(sizes.width, sizes.hidden, false, false);
  expect_to_fit(sizes.hidden, sizes.heads, false, true);
}

TEST(NarrowProductCut, CoversOutputsAndInputsWithinSharedMemory) {
  for (const ProductSizes& sizes : kTrainedModels) expect_chain_to_fit(sizes);
  expect_chain_to_fit({64, 64, 128, 192});
  expect_chain_to_fit({64, 128, 4288, 2200});
}

TEST(NarrowProductCut, GivesNearlyEveryProcessorABlock) {
  for (const auto& [hidden, attended, width, heads] : kTrainedModels) {
    if (hidden < 1024) continue;  // fewer outputs than four to a processor
    for (const int outputs : {hidden, heads})
      EXPECT_GE(cut_narrow(hidden, outputs, false, kProcessors).blocks, 0.9 * kProcessors)
          << outputs;
    EXPECT_GE(cut_narrow(hidden, 2 * width, true, kProcessors).blocks, 0.9 * kProcessors) << width;
  }
}

}  // namespace
}  // namespace slime::kernels::cuda::narrow
