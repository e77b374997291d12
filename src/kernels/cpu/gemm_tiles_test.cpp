#include "kernels/cpu/gemm_tiles.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "kernels/cpu/portable_tile_ops.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/products_for_tests.h"

namespace slime::kernels::cpu {
namespace {

/// Both implementations where both run: the blocks and panels above the tiles are tested on any
/// processor.
std::vector<const TileOps*> all_ops() {
  static const TileOps portable = portable_tile_ops();
  std::vector<const TileOps*> ops{&portable};
  if (has_tiles()) ops.push_back(&avx512_tile_ops());
  if (has_amx()) ops.push_back(&amx_tile_ops());
  return ops;
}

struct Operand {
  Tensor rows;    // [size, k] as the mathematics sees it
  Tensor memory;  // the same, transposed in memory when k is strided
  TileFactor factor;

  Operand(int64_t size, int64_t k, bool k_strided)
      : rows(at::randn({size, k}).to(at::kBFloat16)),
        memory(k_strided ? rows.t().contiguous() : rows) {
    factor = {static_cast<const at::BFloat16*>(memory.data_ptr()), k_strided ? size : k, k_strided};
  }
};

Tensor product(const TileOps& ops, const Operand& a, const Operand& b) {
  const int64_t m = a.rows.size(0), n = b.rows.size(0);
  Tensor c = at::full({m, n}, 7.0F);
  gemm_tiles(ops, {m, n, a.rows.size(1)}, a.factor, b.factor,
             {c.data_ptr(), n, TileStore::kFloat, false});
  return c;
}

TEST(TileProduct, EqualsTheDoublePrecisionProductForAllLayoutsAndSizes) {
  at::manual_seed(3);
  for (const TileOps* ops : all_ops()) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                  {1, 96, 64},
                                  {1, 48, 576},
                                  {33, 65, 31},
                                  {127, 40, 33},
                                  {128, 129, 96},
                                  {129, 70, 40},
                                  {150, 33, 600},
                                  {600, 40, 300}}) {
      for (int layout = 0; layout < 4; ++layout) {
        const Operand a(m, k, layout % 2 == 1), b(n, k, layout / 2 == 1);
        const Tensor expected = at::mm(a.rows.to(at::kDouble), b.rows.to(at::kDouble).t());
        const std::string what = fmt::format("{} {} {} layout {}", m, n, k, layout);
        Tensor c = product(*ops, a, b);
        EXPECT_LT(max_difference(c, expected), tolerance(k)) << what;
        gemm_tiles(*ops, {m, n, k}, a.factor, b.factor,
                   {c.data_ptr(), n, TileStore::kAddToFloat, false});
        EXPECT_LT(max_difference(c, 2 * expected), 2 * tolerance(k)) << what;
        Tensor narrow = at::empty({m, n}, at::kBFloat16);
        gemm_tiles(*ops, {m, n, k}, a.factor, b.factor,
                   {narrow.data_ptr(), n, TileStore::kBfloat16, false});
        EXPECT_TRUE(narrow.equal(product(*ops, a, b).to(at::kBFloat16))) << what;
      }
    }
  }
}

TEST(TileProduct, GivesARowTheSameBitsWhateverItsNeighboursAre) {
  at::manual_seed(4);
  for (const TileOps* ops : all_ops()) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{75, 608}, {80, 608}, {80, 64}}) {
      const Operand a(140, k, false), b(n, k, false);
      const Tensor all = product(*ops, a, b);  // in cache blocks
      // Streamed; a few rows have a way of their own where the others are full tiles.
      for (const int64_t rows : {1, 2, 3, 5, 8, 9, 16, 33, 128}) {
        Tensor c = at::empty({rows, n});
        gemm_tiles(*ops, {rows, n, k}, a.factor, b.factor,
                   {c.data_ptr(), n, TileStore::kFloat, false});
        EXPECT_TRUE(c.equal(all.narrow(0, 0, rows))) << rows << " " << n << " " << k;
      }
    }
  }
}

TEST(TileProduct, OfSeveralAtOnceHasTheBitsOfEachAlone) {
  at::manual_seed(6);
  for (const TileOps* ops : all_ops()) {
    const Operand b(96, 64, false), odd(50, 33, false);
    std::vector<Operand> rows;
    for (const int64_t m : {0, 1, 4, 9, 40, 150}) rows.emplace_back(m, 64, false);
    rows.emplace_back(7, 33, false);
    std::vector<Tensor> c;
    std::vector<TileProduct> products;
    for (const Operand& a : rows) {
      const Operand& right = a.rows.size(1) == 64 ? b : odd;
      const int64_t m = a.rows.size(0), n = right.rows.size(0);
      c.push_back(at::full({m, n}, 7.0F));
      products.push_back({{m, n, a.rows.size(1)},
                          a.factor,
                          right.factor,
                          {c.back().data_ptr(), n, TileStore::kFloat, false}});
    }
    gemm_tiles(*ops, products);
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_TRUE(c[i].equal(product(*ops, rows[i], rows[i].rows.size(1) == 64 ? b : odd))) << i;
  }
}

TEST(TileProduct, OfNoStepsIsZeroOrLeavesTheSum) {
  for (const TileOps* ops : all_ops()) {
    Tensor c = at::ones({3, 20});
    const TileFactor none{nullptr, 1, true};
    gemm_tiles(*ops, {3, 20, 0}, none, none, {c.data_ptr(), 20, TileStore::kAddToFloat, false});
    EXPECT_TRUE(c.equal(at::ones({3, 20})));
    gemm_tiles(*ops, {3, 20, 0}, none, none, {c.data_ptr(), 20, TileStore::kFloat, false});
    EXPECT_TRUE(c.equal(at::zeros({3, 20})));
  }
}

TEST(TileProduct, OfTheProcessorHasTheBitsOfItsTwin) {
  if (!has_amx()) GTEST_SKIP() << "this processor has no AMX";
  at::manual_seed(5);
  const TileOps twin = portable_tile_ops();
  for (int layout = 0; layout < 4; ++layout) {
    const Operand a(200, 650, layout % 2 == 1), b(170, 650, layout / 2 == 1);
    EXPECT_TRUE(product(amx_tile_ops(), a, b).equal(product(twin, a, b))) << layout;
  }
}

}  // namespace
}  // namespace slime::kernels::cpu
