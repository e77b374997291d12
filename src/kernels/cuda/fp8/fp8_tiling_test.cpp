// Tilings of products of codes: plain integers, tested without a GPU.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/fp8/factor_rows.h"
#include "kernels/cuda/fp8/few_tiling.h"
#include "kernels/cuda/fp8/narrow_tiling.h"

namespace slime::kernels::cuda::fp8 {
namespace {

constexpr int kProcessors = 132;
struct Shape {
  int inputs, outputs;
};
/// Of 0.6B, 4B, 8B and 32B, and small ones with partial blocks.
constexpr Shape kShapes[] = {{1024, 4096},  {2048, 1024},  {1024, 6144},  {3072, 1024},
                             {2560, 6144},  {4096, 2560},  {2560, 19456}, {9728, 2560},
                             {4096, 24576}, {12288, 4096}, {5120, 51200}, {25600, 5120},
                             {128, 16},     {320, 160},    {64, 8}};

void expect_covers(const Tiling& tiling, int outputs) {
  const int units = tiling.is_pairs ? outputs / 2 : outputs;
  EXPECT_GE(tiling.tiles * tiling.box, units);
  EXPECT_LT((tiling.tiles - 1) * tiling.box, units);
  EXPECT_LE(tiling.group_tiles(), kMostGroupTiles);
  EXPECT_LE(tiling.groups(), kMostGroups);
  EXPECT_GE(tiling.slices(), 1);
  EXPECT_EQ(tiling.block_outputs() % 8, 0) << "operands begin with whole groups of lines";
  EXPECT_EQ(tiling.begin_of(tiling.splits), tiling.slabs);
  for (int split = 0; split < tiling.splits; ++split)
    EXPECT_LT(tiling.begin_of(split), tiling.begin_of(split + 1)) << "no split is empty";
}

TEST(Fp8Tiling, FewRowsFitInSharedMemory) {
  for (const Shape& shape : kShapes) {
    for (const bool is_pairs : {false, true}) {
      if (is_pairs && shape.outputs % 16 != 0) continue;
      for (Tiling tiling : {whole_tiling(shape.inputs, shape.outputs, is_pairs, kProcessors),
                            split_tiling(shape.inputs, shape.outputs, kProcessors)}) {
        expect_covers(tiling, shape.outputs);
        for (const int rows : {1, 8, 9, 33, 64, 65, 128}) {
          const int multiplied = rows <= 8    ? 8
                                 : rows <= 16 ? 16
                                 : rows <= 32 ? 32
                                 : rows <= 64 ? 64
                                              : 128;
          tiling.most_groups = most_groups(rows);
          const FewLayout layout(tiling, multiplied, rows, kProcessors);
          EXPECT_GE(layout.x_rows, rows);
          EXPECT_EQ(layout.stage_stride % 1024, 0);
          EXPECT_LE(layout.bytes, kPipelineBytes);
          EXPECT_LE(layout.stages, kMostStages);
          EXPECT_GE(layout.stages_in_flight, 1);
          EXPECT_LE(layout.stages_in_flight, layout.stages) << "a barrier tracks one phase";
          EXPECT_TRUE(layout.stages >= divide_up(tiling.slabs, tiling.splits) ||
                      layout.stages % tiling.slices() == 0)
              << "a stage is always the same slice's";
          // Warpgroups begin with stages of their own.
          EXPECT_GE(layout.stages, std::min(tiling.slices(), tiling.slabs / tiling.splits));
        }
      }
    }
  }
}

void expect_fits(const narrow::Tiling& tiling, const Shape& shape) {
  const int units = tiling.is_pairs ? shape.outputs / 2 : shape.outputs;
  EXPECT_GE(tiling.blocks * tiling.box, units);
  EXPECT_LE(tiling.tiles(), narrow::kMostTiles);
  EXPECT_EQ(tiling.slab_bytes() % 1024, 0);
  EXPECT_EQ(tiling.slabs * kSlabInputs, shape.inputs);
  EXPECT_EQ(tiling.slabs % tiling.per_stage, 0) << "a copy is a whole stage";
  EXPECT_TRUE(tiling.splits == 1 || tiling.per_stage == 1);
  for (int split = 0; split < tiling.splits; ++split)
    EXPECT_LE(tiling.begin_of(split + 1) - tiling.begin_of(split), tiling.most_slabs());
  const narrow::Layout layout(tiling);
  EXPECT_LE(layout.bytes, narrow::kSharedBytes);
  EXPECT_GE(layout.stages, 1);
  EXPECT_TRUE(layout.stages * tiling.per_stage >= tiling.most_slabs() ||
              layout.stages % tiling.turn() == 0)
      << "a stage is always the same warpgroups'";
  EXPECT_LE(layout.stages_in_flight, layout.stages) << "a barrier tracks one phase";
  EXPECT_EQ(layout.x_begin % 1024, 0);
  EXPECT_GE(layout.sums_begin - layout.x_begin, 1024 * tiling.most_slabs());
}

TEST(Fp8Tiling, NarrowProductsFitInSharedMemory) {
  for (const Shape& shape : kShapes) {
    if (shape.inputs % kSlabInputs != 0 || shape.inputs > narrow::kMostInputs) continue;
    for (const bool is_pairs : {false, true})
      expect_fits(narrow::whole_tiling(shape.inputs, shape.outputs, is_pairs, kProcessors), shape);
    const narrow::Tiling split = narrow::split_tiling(shape.inputs, shape.outputs, kProcessors);
    expect_fits(split, shape);
    EXPECT_EQ(split.splits, split_tiling(shape.inputs, shape.outputs, kProcessors).splits);
  }
}

TEST(Fp8Tiling, RowsOfFactorsAreWholeCopies) {
  EXPECT_EQ(factor_pitch(1), 4);
  EXPECT_EQ(factor_pitch(64), 64);
  EXPECT_EQ(factor_pitch(65), 128);
  EXPECT_EQ(factor_rows(320), 3);
}

}  // namespace
}  // namespace slime::kernels::cuda::fp8
