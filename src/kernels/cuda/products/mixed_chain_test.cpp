/// The fused products between two attentions, of rows that take adapters of their own: each row has the bits of a batch
/// that takes its adapter.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <vector>

#include "kernels/cuda/products/adapted_chain_for_tests.h"

namespace slime::kernels {
namespace {

/// Of all linear layers, ranks by turns; with several some have fewer pairs.
AdapterForms adapters_of_ranks(int64_t count, const std::vector<int64_t>& ranks) {
  AdapterForms forms;
  for (int64_t slot = 0; slot < count; ++slot) {
    const auto rank = [&](int64_t more) {
      return ranks[static_cast<size_t>(slot + more) % ranks.size()];
    };
    forms.output.push_back({{0, 1, rank(0)}});
    forms.gate_up.push_back({{0, 0.5, rank(0)}, {0.5, 1, rank(1)}});
    forms.down.push_back({{0, 1, rank(2)}});
    forms.qkv.push_back({{0, 0.66, rank(1)}, {0.66, 0.83, rank(2)}, {0.83, 1, rank(0)}});
    if (slot % 5 == 4) {
      forms.down.back().clear();
      forms.qkv.back().pop_back();
    }
  }
  return forms;
}

/// As an engine fills them, on the CPU, with `empty` more: by slot, first those of rows without adapter.
std::array<std::vector<int32_t>, 2> tiles_of(const std::vector<int64_t>& slot_T, int64_t empty) {
  std::map<int64_t, std::vector<int32_t>> rows_of_slot;
  for (std::size_t row = 0; row < slot_T.size(); ++row)
    rows_of_slot[slot_T[row]].push_back(static_cast<int32_t>(row));
  std::vector<int32_t> slots, members;
  constexpr auto kRows = static_cast<std::size_t>(AdapterTiles::kRows);
  for (const auto& [slot, rows] : rows_of_slot) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i % kRows == 0) {
        slots.push_back(static_cast<int32_t>(slot));
        members.resize(kRows * slots.size(), -1);
      }
      members[kRows * (slots.size() - 1) + i % kRows] = rows[i];
    }
  }
  slots.resize(slots.size() + static_cast<std::size_t>(empty), -1);
  members.resize(kRows * slots.size(), -1);
  return {slots, members};
}

AdapterTiles on_gpu(const std::array<std::vector<int32_t>, 2>& tiles) {
  return {to_gpu(tiles[0], at::kInt), to_gpu(tiles[1], at::kInt)};
}

/// Slots of rows: by turns with rows that take none between them, all the same, in runs, none.
std::vector<std::vector<int64_t>> mixtures(int64_t rows, int64_t adapters) {
  std::vector<std::vector<int64_t>> all;
  const std::vector<std::function<int64_t(int64_t)>> slots{
      [&](int64_t row) { return row % (adapters + 1) - 1; },
      [&](int64_t row) { return row % adapters; },
      [&](int64_t) { return adapters - 1; },
      [&](int64_t row) { return (rows - 1 - row) * adapters / rows; },
      [&](int64_t row) { return row == rows / 2 ? int64_t{0} : int64_t{-1}; },
      [&](int64_t) { return int64_t{-1}; }};
  for (const auto& slot_of : slots) {
    all.emplace_back();
    for (int64_t row = 0; row < rows; ++row) all.back().push_back(slot_of(row));
  }
  return all;
}

void place(AdaptedChain& adapted) {
  const auto* tables =
      dynamic_cast<const AdapterTables*>(&kernels_for(adapted.output.on_gpu().values));
  ASSERT_NE(tables, nullptr);
  std::vector<MatrixAdapters*> placed;
  for (AdaptedMatrix* matrix : adapted.matrices()) placed.push_back(&matrix->adapters());
  tables->place_pairs(placed);
}

class CudaMixedChain : public ::testing::TestWithParam<AdaptedShape> {
 protected:
  static constexpr int64_t kMostFused = 32;

  /// The first rows, all of which take one slot.
  static Tensor alone(AdaptedChain& adapted, const BlockChains& chains, int64_t rows,
                      int64_t slot) {
    adapted.rows.tiles = {};
    adapted.rows.shares = {{std::max<int64_t>(slot, 0), {}}};
    adapted.rows.is_on = slot >= 0;
    Tensor result = chains.block_chain(adapted.on_gpu(rows));
    adapted.rows.is_on = true;
    return result;
  }
};

TEST_P(CudaMixedChain, RowsHaveTheBitsOfABatchThatTakesTheirAdapter) {
  SLIME_NEEDS_GPU();
  open_gpu();
  const std::vector<std::vector<int64_t>> ranks_of_cases{{8}, {16}, {32}, {64}, {32, 8, 64, 33, 1}};
  for (const int64_t count : {1, 2, 3, 8}) {
    for (const std::vector<int64_t>& ranks : ranks_of_cases) {
      at::manual_seed(11);
      AdaptedChain adapted(GetParam(), kMostFused, adapters_of_ranks(count, ranks));
      place(adapted);
      const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
      for (const int64_t rows : {3, 8, 9, 16, 17, 31, 32}) {
        adapted.rows.tiles = {};
        if (!chains->has_block_chain(adapted.on_gpu(rows))) GTEST_SKIP() << "this GPU has no chain";
        std::map<int64_t, Tensor> of_slot;
        for (int64_t slot = -1; slot < count; ++slot)
          of_slot[slot] = alone(adapted, *chains, rows, slot).cpu();
        for (const std::vector<int64_t>& slot_T : mixtures(rows, count)) {
          adapted.rows.tiles = on_gpu(tiles_of(slot_T, 1));
          const BlockChain part = adapted.on_gpu(rows);
          ASSERT_TRUE(chains->has_block_chain(part)) << rows << " rows, rank " << ranks.front();
          const Tensor result = chains->block_chain(part).cpu();
          for (int64_t row = 0; row < rows; ++row) {
            const int64_t slot = slot_T[static_cast<size_t>(row)];
            EXPECT_TRUE(result[row].equal(of_slot[slot][row])) << fmt::format(
                "row {} of {}, slot {} of {}, rank {}", row, rows, slot, count, ranks.front());
          }
        }
      }
    }
  }
}

/// One row each of most of them, and more than the kernels make h of at once.
TEST_P(CudaMixedChain, OfManyAdapters) {
  SLIME_NEEDS_GPU();
  open_gpu();
  constexpr int64_t kAdapters = 64, kRows = 128;
  for (const int64_t rank : {8, 32, 64}) {
    at::manual_seed(12);
    AdaptedChain adapted(GetParam(), kRows, adapters_of_ranks(kAdapters, {rank}));
    place(adapted);
    const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
    if (!chains->has_block_chain(adapted.on_gpu(kRows))) GTEST_SKIP() << "this GPU has no chain";
    for (const int64_t rows : {1, 2, 5, 32, 33, 64, 128}) {
      std::vector<int64_t> slot_T;
      for (int64_t row = 0; row < rows; ++row) slot_T.push_back((7 * row + 3) % kAdapters);
      std::map<int64_t, Tensor> of_slot;
      for (const int64_t slot : slot_T)
        if (!of_slot.contains(slot)) of_slot[slot] = alone(adapted, *chains, rows, slot).cpu();
      adapted.rows.tiles = on_gpu(tiles_of(slot_T, 0));
      const BlockChain part = adapted.on_gpu(rows);
      const bool is_fused = rows > 2 && rows <= kMostFused && chains->has_block_chain(part);
      const Tensor result = block_chain(chains, part).cpu();
      for (int64_t row = 0; row < rows; ++row) {
        const Tensor& own = of_slot[slot_T[static_cast<size_t>(row)]];
        if (is_fused) {
          EXPECT_TRUE(result[row].equal(own[row])) << fmt::format("row {} of {}", row, rows);
        } else {
          EXPECT_LT(relative_error(result[row], own[row]), 0.03)
              << fmt::format("row {} of {}, rank {}", row, rows, rank);
        }
      }
    }
  }
}

/// Tiles are numbers on the device, which passes that follow each other without a pause find anew.
TEST_P(CudaMixedChain, FindsEachPassesRows) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(13);
  constexpr int64_t kRows = 32, kAdapters = 8, kTiles = 12;
  AdaptedChain adapted(GetParam(), kRows, adapters_of_ranks(kAdapters, {32, 16}));
  place(adapted);
  const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
  std::vector<AdapterTiles> mixed;
  for (const std::vector<int64_t>& slot_T : mixtures(kRows, kAdapters)) {
    auto tiles = tiles_of(slot_T, 0);
    ASSERT_LE(tiles[0].size(), static_cast<size_t>(kTiles));
    tiles[0].resize(kTiles, -1);
    tiles[1].resize(kTiles * AdapterTiles::kRows, -1);
    mixed.push_back(on_gpu(tiles));
  }
  AdapterTiles& tiles = adapted.rows.tiles;
  tiles = {mixed.front().slot_N.clone(), mixed.front().row_N.clone()};
  if (!chains->has_block_chain(adapted.on_gpu(kRows))) GTEST_SKIP() << "this GPU has no chain";
  constexpr int kPasses = 60;
  std::vector<BlockChain> parts;
  for (int pass = 0; pass < kPasses; ++pass) parts.push_back(adapted.on_gpu(kRows));
  std::vector<Tensor> results;
  for (std::size_t pass = 0; pass < parts.size(); ++pass) {
    tiles.slot_N.copy_(mixed[pass % mixed.size()].slot_N);
    tiles.row_N.copy_(mixed[pass % mixed.size()].row_N);
    results.push_back(chains->block_chain(parts[pass]));
  }
  for (std::size_t pass = mixed.size(); pass < parts.size(); ++pass)
    EXPECT_TRUE(results[pass].equal(results[pass - mixed.size()])) << pass;
  EXPECT_FALSE(results[0].equal(results[1]));
}

/// Two networks' products wait for their own thread blocks, and share the multiprocessors.
TEST_P(CudaMixedChain, HasTheSameBitsBesideAnotherOnItsOwnStream) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(14);
  constexpr int64_t kRows = 32, kAdapters = 8;
  const AdapterForms forms = adapters_of_ranks(kAdapters, {32});
  AdaptedChain first(GetParam(), kRows, forms), second(GetParam(), kRows, forms);
  for (AdaptedChain* adapted : {&first, &second}) {
    place(*adapted);
    adapted->rows.tiles = on_gpu(tiles_of(mixtures(kRows, kAdapters).front(), 1));
  }
  const BlockChains* chains = block_chains_for(first.output.on_gpu().values);
  if (!chains->has_block_chain(first.on_gpu(kRows))) GTEST_SKIP() << "this GPU has no chain";
  expect_the_same_bits_beside_another(*chains, {&first, &second}, kRows);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaMixedChain,
                         ::testing::Values(kSmallAdapted, kUnevenAdapted, kLargeAdapted4b),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace slime::kernels
