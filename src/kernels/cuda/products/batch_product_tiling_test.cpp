#include "kernels/cuda/products/batch_product_tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/products/batch_product_hidden.h"
#include "kernels/cuda/products/batch_product_mixed.h"
#include "kernels/cuda/products/product_sizes_for_tests.h"

namespace slime::kernels::cuda::batch {
namespace {

constexpr int kProcessors = 132, kMostSharedBytes = 227 << 10;

void expect_to_fit(const SharedLayout& layout, const Tiling& tiling, int rows) {
  const int k_tiles = divide_up(tiling.k_tiles, tiling.splits);
  EXPECT_GE(layout.stages, std::min(2, k_tiles));
  EXPECT_LE(layout.bytes, kPipelineBytes);
  EXPECT_LE(layout.stages * layout.stage_stride, layout.bytes);
  EXPECT_LE(SharedLayout::sums_bytes(tiling, rows), layout.bytes);
  EXPECT_EQ(layout.x_begin % 1024, 0);
  EXPECT_EQ(layout.stage_stride % 1024, 0);
  EXPECT_GE(layout.stages_in_flight, 1);
  EXPECT_LE(layout.stages_in_flight, layout.stages) << "a barrier tracks one phase";
  // Of the last slab of the last stage the last group reads 64 outputs, and all all rows.
  const int last_slot = (layout.stages - 1) * layout.stage_stride, slab = tiling.slabs - 1;
  EXPECT_LE(last_slot + 128 * (tiling.block_outputs() * slab + kGroupOutputs * tiling.groups()),
            layout.bytes);
  EXPECT_LE(last_slot + layout.x_begin + 128 * (layout.x_rows * slab + rows), layout.bytes);
  // An occupancy of one thread block, or two.
  const bool is_alone = tiling.tiles * tiling.splits <= kProcessors;
  EXPECT_EQ(is_alone, 2 * layout.bytes > kMostSharedBytes) << tiling.tiles << " " << tiling.splits;
}

void expect_to_fit(const Tiling& tiling, int inputs, int outputs) {
  const int units = tiling.is_pairs ? outputs / 2 : outputs;
  EXPECT_GE(tiling.tiles * tiling.box, units);
  EXPECT_LT((tiling.tiles - 1) * tiling.box, units) << "each block has outputs";
  EXPECT_EQ(tiling.k_tiles * tiling.slabs * kSlabInputs, inputs);
  EXPECT_LE(tiling.splits, tiling.k_tiles) << "each split has inputs";
  EXPECT_LE(tiling.groups(), kMostGroups);
  EXPECT_EQ(tiling.block_outputs() % 8, 0) << "slabs begin where the swizzle does";
  EXPECT_EQ(tiling.box % kPiece, 0);
  for (int rows_there = 1; rows_there <= 64; ++rows_there) {
    const int rows = rows_there <= 8 ? 8 : rows_there <= 16 ? 16 : rows_there <= 32 ? 32 : 64;
    const SharedLayout layout(tiling, rows, rows_there, kProcessors);
    EXPECT_GE(layout.x_rows, rows_there);
    EXPECT_EQ(layout.x_rows % 8, 0);
    EXPECT_LE(layout.x_rows, rows);
    expect_to_fit(layout, tiling, rows);
  }
}

TEST(BatchProductCut, CoversOutputsAndInputsWithinSharedMemory) {
  for (const auto& [hidden, attended, width, heads] : kTrainedModels) {
    SCOPED_TRACE(hidden);
    expect_to_fit(split_k_tiling(attended, hidden, kProcessors), attended, hidden);
    expect_to_fit(output_tiling(hidden, 2 * width, true, kProcessors), hidden, 2 * width);
    expect_to_fit(split_k_tiling(width, hidden, kProcessors), width, hidden);
    expect_to_fit(output_tiling(hidden, heads, false, kProcessors), hidden, heads);
    expect_to_fit(output_tiling(hidden, 151'936, false, kProcessors), hidden, 151'936);
  }
}

/// Of a block's products, those whose thread blocks have a multiprocessor each.
std::vector<Tiling> tilings_with_adapters(const ProductSizes& model) {
  const auto [hidden, attended, width, heads] = model;
  std::vector<Tiling> tilings{split_k_tiling(attended, hidden, kProcessors),
                              output_tiling(hidden, 2 * width, true, kProcessors),
                              split_k_tiling(width, hidden, kProcessors),
                              output_tiling(hidden, heads, false, kProcessors)};
  std::erase_if(tilings, [](const Tiling& tiling) { return !tiling.is_alone(kProcessors); });
  return tilings;
}

TEST(BatchProductCut, LeavesRoomForWhatAdaptersAdd) {
  for (const ProductSizes& model : kTrainedModels) {
    SCOPED_TRACE(model.hidden);
    for (const Tiling& tiling : tilings_with_adapters(model)) {
      for (const int rows : {8, 16, 32}) {
        const int bytes = hidden_bytes(rows, staged_hidden_pitch(96));
        EXPECT_LE(bytes, kMostHiddenBytes);
        const SharedLayout layout(tiling, rows, rows, kProcessors, bytes);
        expect_to_fit(layout, tiling, rows);
        EXPECT_GE(layout.hidden_begin, layout.stages * layout.stage_stride);
        EXPECT_LE(layout.hidden_begin + bytes, layout.bytes);
        EXPECT_EQ(layout.hidden_begin % 16, 0);
      }
    }
  }
}

TEST(BatchProductCut, LeavesRoomForWhatSeveralAdaptersAdd) {
  for (const ProductSizes& model : kTrainedModels) {
    SCOPED_TRACE(model.hidden);
    for (const Tiling& tiling : tilings_with_adapters(model)) {
      EXPECT_LE(divide_up(tiling.block_outputs(), kFragmentOutputs), kMostOutputTiles);
      for (const int rows : {8, 16, 32}) {
        for (const int tiles : {1, 10, kMostMixedTiles}) {
          for (const int chunks : {1, 3, 7}) {
            const int of_hidden = mixed_hidden_bytes(rows, chunks);
            EXPECT_LE(of_hidden, kMostHiddenBytes);
            const MixedLayout layout(tiling, rows, rows, kProcessors, tiles, chunks);
            const int k_tiles = divide_up(tiling.k_tiles, tiling.splits);
            EXPECT_GE(layout.shared.stages, std::min(2, k_tiles));
            EXPECT_LE(layout.shared.stages * layout.shared.stage_stride, layout.hidden_begin);
            EXPECT_LE(SharedLayout::sums_bytes(tiling, rows), layout.hidden_begin);
            EXPECT_EQ(layout.hidden_begin % 16, 0);
            EXPECT_GE(layout.fragments_begin, layout.hidden_begin + of_hidden);
            EXPECT_EQ(layout.fragments_begin % 16, 0);
            EXPECT_GE(layout.fragments, 0);
            EXPECT_LE(layout.fragments, kMostFragments);
            EXPECT_LE(layout.fragments_begin + kFragmentBytes * layout.fragments,
                      layout.shared.bytes);
            EXPECT_LE(layout.shared.bytes, kMixedSharedBytes);
            EXPECT_GT(2 * layout.shared.bytes, kMostSharedBytes);
          }
        }
      }
    }
  }
}

/// Eight adapters of rank 32 beside all linear layers of Qwen3-4B, by 32 rows.
TEST(BatchProductCut, HoldsTheFactorsOfEightAdapters) {
  const auto room = [](const Tiling& tiling, int chunks) {
    return MixedLayout(tiling, 32, 32, kProcessors, /*tiles=*/10, chunks).fragments;
  };
  constexpr int kAdapters = 8, kStepsOfRank = 2;
  EXPECT_GE(room(output_tiling(2560, 6144, false, kProcessors), 3), kAdapters * kStepsOfRank * 3);
  EXPECT_GE(room(split_k_tiling(4096, 2560, kProcessors), 1), kAdapters * kStepsOfRank * 4);
  EXPECT_GE(room(split_k_tiling(9728, 2560, kProcessors), 1), kAdapters * kStepsOfRank * 4);
  // Ten times 16 outputs, of which one has gates and ups.
  EXPECT_GE(room(output_tiling(2560, 2 * 9728, true, kProcessors), 2),
            kAdapters * kStepsOfRank * 11);
}

/// Factors of parts of a matrix that is itself a part of what they count from, as the thread blocks have them.
TEST(BatchProductCut, FindsTheOutputsOfAFactor) {
  for (const bool is_pairs : {false, true}) {
    for (const int outputs : {80, 1088, 2 * 9728}) {
      const Tiling tiling = output_tiling(640, outputs, is_pairs, kProcessors);
      const int units = is_pairs ? outputs / 2 : outputs;
      for (const int first : {0, 24}) {
        for (const auto& [begin, end] :
             {std::pair(first, first + outputs), std::pair(first + 8, first + outputs / 2),
              std::pair(first + outputs / 2 - 8, first + outputs / 2 + 16), std::pair(0, first)}) {
          int found = 0;
          for (int block = 0; block < tiling.tiles; ++block) {
            unsigned tiles = 0;
            for (int half = 0; half < (is_pairs ? 2 : 1); ++half) {
              const OutputRange range(tiling, units, first, block, begin, end, half);
              for (int unit = 0; unit < tiling.box; ++unit) {
                const int output = half * units + block * tiling.box + unit + first;
                const bool is_there =
                    block * tiling.box + unit < units && output >= begin && output < end;
                ASSERT_EQ(unit >= range.begin && unit < range.end, is_there)
                    << outputs << " outputs, block " << block << ", unit " << unit;
                if (!is_there) continue;
                ++found;
                tiles |= 1U << (half * tiling.box + unit) / kFragmentOutputs;
                EXPECT_EQ(range.from + unit - range.begin, output - begin);
              }
            }
            EXPECT_EQ(tiles_of_factor(tiling, units, first, block, begin, end), tiles);
          }
          EXPECT_EQ(found, std::max(0, end - std::max(begin, first)));
        }
      }
    }
  }
}

TEST(BatchProductCut, CountsUnitsOfWhatAdaptersAdd) {
  LowRankFactors factors;
  factors.count = 2;
  factors.of[0].rank = 32;
  factors.of[1].rank = 9;
  EXPECT_EQ(hidden_chunks(factors), 4 + 2);
  EXPECT_EQ(hidden_units(factors, 16), 6 * kHiddenShares);
  EXPECT_EQ(hidden_units(factors, 17), 2 * 6 * kHiddenShares);
  EXPECT_EQ(hidden_numbers(factors, 17), 6 * kHiddenShares * 17 * kUnitRanks);
}

TEST(BatchProductCut, GivesNearlyEveryProcessorABlock) {
  for (const auto& [hidden, attended, width, heads] : kTrainedModels) {
    if (hidden < 896) continue;  // too few inputs to split
    const Tiling tiling = split_k_tiling(width, hidden, kProcessors);
    EXPECT_GE(tiling.tiles * tiling.splits, 0.8 * kProcessors) << hidden;
  }
}

}  // namespace
}  // namespace slime::kernels::cuda::batch
