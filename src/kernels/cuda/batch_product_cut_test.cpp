#include "kernels/cuda/batch_product_cut.h"

#include <gtest/gtest.h>

#include <vector>

namespace slime::kernels::cuda::batch {
namespace {

constexpr int kProcessors = 132, kMostSharedBytes = 227 << 10;

/// hidden, attended, width, heads: of models that people train.
struct Sizes {
  int hidden, attended, width, heads;
};
constexpr Sizes kModels[] = {
    {576, 576, 1536, 960},      {896, 896, 4864, 1152},      {1024, 2048, 3072, 4096},
    {1536, 1536, 8960, 2048},   {2048, 2048, 8192, 3072},    {2560, 4096, 9728, 6144},
    {3584, 3584, 18944, 4608},  {4096, 4096, 14336, 6144},   {5120, 5120, 25600, 7168},
    {8192, 8192, 28672, 10240}, {16384, 16384, 53248, 18432}};

void expect_to_fit(const SharedLayout& layout, const Cut& cut, int rows, int x_rows) {
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
  EXPECT_LE(last_slot + layout.x_begin + 128 * (x_rows * slab + rows), layout.bytes);
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
  for (int x_rows = 8; x_rows <= 64; x_rows += 8) {
    const int rows = x_rows <= 16 ? x_rows : x_rows <= 32 ? 32 : 64;
    expect_to_fit(SharedLayout(cut, rows, x_rows, kProcessors), cut, rows, x_rows);
  }
}

TEST(BatchProductCut, CoversOutputsAndInputsWithinSharedMemory) {
  for (const auto& [hidden, attended, width, heads] : kModels) {
    SCOPED_TRACE(hidden);
    expect_to_fit(cut_into_parts(attended, hidden, kProcessors), attended, hidden);
    expect_to_fit(cut_outputs(hidden, 2 * width, true, kProcessors), hidden, 2 * width);
    expect_to_fit(cut_into_parts(width, hidden, kProcessors), width, hidden);
    expect_to_fit(cut_outputs(hidden, heads, false, kProcessors), hidden, heads);
    expect_to_fit(cut_outputs(hidden, 151'936, false, kProcessors), hidden, 151'936);
  }
}

TEST(BatchProductCut, GivesNearlyEveryProcessorABlock) {
  for (const auto& [hidden, attended, width, heads] : kModels) {
    if (hidden < 896) continue;  // too few inputs to part
    const Cut cut = cut_into_parts(width, hidden, kProcessors);
    EXPECT_GE(cut.tiles * cut.parts, 0.8 * kProcessors) << hidden;
  }
}

}  // namespace
}  // namespace slime::kernels::cuda::batch
