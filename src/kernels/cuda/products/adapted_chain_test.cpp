/// The fused products between two attentions with adapters beside them, against single operations on the CPU with
/// matrices into which the adapters are merged.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <vector>

#include "kernels/cuda/products/adapted_chain_for_tests.h"

namespace slime::kernels {
namespace {

constexpr auto kRowCounts = std::to_array<int64_t>({1, 2, 3, 8, 17, 32, 64, 65, 128, 129, 256});
/// Of the chain's tests: activations are rounded to 8 bits four times on the way.
constexpr double kBound = 0.012;

class CudaAdaptedChain : public ::testing::TestWithParam<AdaptedShape> {};

TEST_P(CudaAdaptedChain, EqualsItsPartsWithMergedMatrices) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(5);
  AdaptedChain adapted(GetParam(), kRowCounts.back());
  const Tensor exact = adapted.exact(0), without = adapted.exact(-1);
  ASSERT_GT(relative_error(without, exact), 0.1) << "the adapters change little";
  const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
  for (const int64_t rows : kRowCounts) {
    BlockChain part = adapted.on_gpu(rows);
    if (!chains->has_block_chain(part)) GTEST_SKIP() << "this GPU has no chain";
    EXPECT_LT(relative_error(chains->block_chain(part), exact.narrow(0, 0, rows)), kBound) << rows;
    adapted.rows.is_on = false;
    part = adapted.on_gpu(rows);
    EXPECT_LT(relative_error(chains->block_chain(part), without.narrow(0, 0, rows)), kBound)
        << rows << " without";
    adapted.rows.is_on = true;
  }
}

/// Chains that follow each other without a pause: kernels of several are under way, and wait for each other's numbers.
TEST_P(CudaAdaptedChain, HasTheSameBitsInEachOfManyPasses) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(7);
  AdaptedChain adapted(GetParam(), kRowCounts.back());
  const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
  for (const int64_t rows : kRowCounts) {
    std::vector<BlockChain> parts;
    for (int i = 0; i < 20; ++i) parts.push_back(adapted.on_gpu(rows));
    if (!chains->has_block_chain(parts.front())) GTEST_SKIP() << "this GPU has no chain";
    std::vector<Tensor> results;
    for (const BlockChain& part : parts) results.push_back(chains->block_chain(part));
    for (const Tensor& result : results) EXPECT_TRUE(result.equal(results.front())) << rows;
  }
}

/// Up to 32 rows the products make h themselves, with more a kernel before each does.
TEST_P(CudaAdaptedChain, HasTheSameBitsWhicheverKernelMakesH) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(8);
  constexpr int64_t kAllRows = 64;
  AdaptedChain adapted(GetParam(), kAllRows);
  const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
  for (const bool is_on : {false, true}) {
    adapted.rows.is_on = is_on;
    const BlockChain all = adapted.on_gpu(kAllRows);
    if (!chains->has_block_chain(all)) GTEST_SKIP() << "this GPU has no chain";
    const Tensor of_all = chains->block_chain(all);
    for (const int64_t rows : {3, 8, 16, 17, 32}) {
      const Tensor result = chains->block_chain(adapted.on_gpu(rows));
      EXPECT_TRUE(result.equal(of_all.narrow(0, 0, rows)))
          << rows << (is_on ? "" : " without: the products themselves differ");
    }
  }
}

/// Two networks' products wait for their own thread blocks, and share the multiprocessors.
TEST_P(CudaAdaptedChain, HasTheSameBitsBesideAnotherOnItsOwnStream) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(9);
  constexpr int64_t kRows = 32;
  AdaptedChain first(GetParam(), kRows), second(GetParam(), kRows);
  const BlockChains* chains = block_chains_for(first.output.on_gpu().values);
  if (!chains->has_block_chain(first.on_gpu(kRows))) GTEST_SKIP() << "this GPU has no chain";
  expect_the_same_bits_beside_another(*chains, {&first, &second}, kRows);
}

/// Tiles of rows that take the same adapter: slot 0, slot 1 or none, by turns.
AdapterTiles tiles_by_turns(int64_t rows, std::vector<int64_t>& slot_T) {
  std::vector<int32_t> slots, members;
  slot_T.assign(static_cast<size_t>(rows), -1);
  for (const int32_t slot : {-1, 0, 1}) {
    int64_t in_tile = AdapterTiles::kRows;
    for (int64_t row = slot + 1; row < rows; row += 3, ++in_tile) {
      slot_T[static_cast<size_t>(row)] = slot;
      if (in_tile == AdapterTiles::kRows) {
        in_tile = 0;
        slots.push_back(slot);
        members.resize(members.size() + AdapterTiles::kRows, -1);
      }
      members[(slots.size() - 1) * AdapterTiles::kRows + static_cast<size_t>(in_tile)] =
          static_cast<int32_t>(row);
    }
  }
  // Room for other mixtures.
  slots.push_back(-1);
  members.resize(members.size() + AdapterTiles::kRows, -1);
  return {to_gpu(slots, at::kInt), to_gpu(members, at::kInt)};
}

TEST_P(CudaAdaptedChain, OfRowsWithSeveralEqualsEachOnesOwn) {
  SLIME_NEEDS_GPU();
  open_gpu();
  at::manual_seed(6);
  AdaptedChain adapted(GetParam(), kRowCounts.back());
  const Tensor exact[3] = {adapted.exact(-1), adapted.exact(0), adapted.exact(1)};
  const auto* tables =
      dynamic_cast<const AdapterTables*>(&kernels_for(adapted.output.on_gpu().values));
  ASSERT_NE(tables, nullptr);
  std::vector<MatrixAdapters*> placed;
  for (AdaptedMatrix* matrix : adapted.matrices()) placed.push_back(&matrix->adapters());
  tables->place_pairs(placed);
  const BlockChains* chains = block_chains_for(adapted.output.on_gpu().values);
  for (const int64_t rows : kRowCounts) {
    std::vector<int64_t> slot_T;
    adapted.rows.tiles = tiles_by_turns(rows, slot_T);
    const BlockChain part = adapted.on_gpu(rows);
    // Fused up to 32 rows, where each thread block has a multiprocessor; more take the kernels beside each product.
    if (rows == 1 && !chains->has_block_chain(part)) GTEST_SKIP() << "this GPU has no chain";
    const Tensor result = block_chain(chains, part).cpu();
    for (const int64_t slot : {-1, 0, 1}) {
      std::vector<int64_t> of_slot;
      for (int64_t row = 0; row < rows; ++row)
        if (slot_T[static_cast<size_t>(row)] == slot) of_slot.push_back(row);
      if (of_slot.empty()) continue;
      const Tensor picked = at::tensor(of_slot, at::kLong);
      EXPECT_LT(
          relative_error(result.index_select(0, picked), exact[slot + 1].index_select(0, picked)),
          kBound)
          << fmt::format("{} rows, slot {}", rows, slot);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAdaptedChain,
                         ::testing::Values(kSmallAdapted, kUnevenAdapted, kLargeAdapted4b),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace slime::kernels
