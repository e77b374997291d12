#include "kernels/cuda/products/narrow_product_tiling.h"

#include <gtest/gtest.h>

#include "kernels/cuda/products/product_sizes_for_tests.h"

namespace slime::kernels::cuda::narrow {
namespace {

constexpr int kProcessors = 132;

void expect_to_fit(const SharedLayout& layout, const Tiling& tiling) {
  EXPECT_GE(layout.stages, std::min(2, tiling.k_tiles));
  EXPECT_GE(layout.stages_in_flight, 1);
  EXPECT_LE(layout.stages_in_flight, layout.stages) << "a barrier tracks one phase";
  EXPECT_GE(layout.stage_stride, SharedLayout::stage_bytes(tiling));
  EXPECT_EQ(layout.stage_stride % 1024, 0);
  EXPECT_LE(layout.stages * layout.stage_stride, layout.x_begin);
  EXPECT_EQ(layout.x_begin % 16, 0);
  EXPECT_EQ(layout.norm_begin % 8, 0);
  EXPECT_EQ(layout.sums_begin % 8, 0);
  EXPECT_GE(layout.sums_begin, layout.norm_begin);
  // The last tile of the last slab reads beyond the stages.
  EXPECT_LE(layout.x_begin + 128 * (tiling.multiplied_outputs() - tiling.block_outputs()),
            layout.sums_begin);
  EXPECT_LE(layout.bytes, kSharedBytes);
}

void expect_to_fit(int inputs, int outputs, bool is_pairs, bool has_norm) {
  const Tiling tiling = narrow_tiling(inputs, outputs, is_pairs, kProcessors);
  const int units = is_pairs ? outputs / 2 : outputs;
  EXPECT_GE(tiling.blocks * tiling.box, units);
  EXPECT_LT((tiling.blocks - 1) * tiling.box, units) << "each block has outputs";
  EXPECT_EQ(tiling.k_tiles * tiling.slabs * kSlabInputs, inputs);
  EXPECT_LE(tiling.tiles(), kMostTiles);
  EXPECT_GE(tiling.multiplied_outputs(), tiling.block_outputs());
  EXPECT_EQ(tiling.slices() * tiling.groups(), kWarps);
  EXPECT_EQ(tiling.slabs * kSlabInputs / kStepInputs % tiling.slices(), 0)
      << "warps share inputs evenly";
  for (int rows = 1; rows <= kMostRows; ++rows)
    if (2 * inputs * rows <= kMostInputBytes)
      expect_to_fit(SharedLayout(tiling, rows, has_norm), tiling);
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
      EXPECT_GE(narrow_tiling(hidden, outputs, false, kProcessors).blocks, 0.9 * kProcessors)
          << outputs;
    EXPECT_GE(narrow_tiling(hidden, 2 * width, true, kProcessors).blocks, 0.9 * kProcessors)
        << width;
  }
}

}  // namespace
}  // namespace slime::kernels::cuda::narrow
