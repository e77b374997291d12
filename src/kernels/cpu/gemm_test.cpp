#include "kernels/cpu/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/cpu/processor.h"
#include "kernels/cpu/products_for_tests.h"

namespace slime::kernels::cpu {
namespace {

class Gemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
    at::manual_seed(7);
  }
};

TEST_F(Gemm, EqualsTheDoublePrecisionProductForAllStridesAndPrecisions) {
  for (const int64_t m : {1, 5, 6, 7, 127, 128, 129, 250}) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {16, 8}, {17, 9}, {129, 127}, {64, 300}, {70, 513}}) {
      const Tensor a = at::randn({m, k});
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Tensor b = at::randn({k, n}).to(dtype);
        const Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
        const Tensor b_along_k = b.t().contiguous(), a_by_k = a.t().contiguous();
        Tensor c = at::full({m, n}, 3.0F);
        gemm({m, n, k}, {a.data_ptr<float>(), k, 1}, {b.data_ptr(), dtype, n, 1},
             c.data_ptr<float>(), n, false);
        EXPECT_LT(max_difference(c, expected), tolerance(k)) << m << " " << n << " " << k;
        gemm({m, n, k}, {a_by_k.data_ptr<float>(), 1, m}, {b_along_k.data_ptr(), dtype, 1, k},
             c.data_ptr<float>(), n, true);
        EXPECT_LT(max_difference(c, 2 * expected), 2 * tolerance(k)) << m << " " << n << " " << k;
      }
    }
  }
}

TEST_F(Gemm, GivesARowTheSameBitsWhateverItsNeighboursAre) {
  const int64_t k = 576, n = 200;
  const Tensor a = at::randn({300, k}), w = at::randn({n, k}).to(at::kBFloat16);
  const auto product = [&](const Tensor& rows) {
    Tensor c = at::empty({rows.size(0), n});
    gemm({rows.size(0), n, k}, {rows.data_ptr<float>(), k, 1}, {w.data_ptr(), at::kBFloat16, 1, k},
         c.data_ptr<float>(), n, false);
    return c;
  };
  const Tensor all = product(a);
  for (const int64_t rows : {1, 2, 5, 31, 64}) {
    EXPECT_TRUE(product(a.narrow(0, 0, rows)).equal(all.narrow(0, 0, rows))) << rows;
  }
}

TEST_F(Gemm, OfNoProductsIsZeroOrLeavesTheSum) {
  Tensor c = at::ones({3, 20});
  gemm({3, 20, 0}, {c.data_ptr<float>(), 1, 1}, {c.data_ptr(), at::kFloat, 1, 1},
       c.data_ptr<float>(), 20, true);
  EXPECT_TRUE(c.equal(at::ones({3, 20})));
  gemm({3, 20, 0}, {c.data_ptr<float>(), 1, 1}, {c.data_ptr(), at::kFloat, 1, 1},
       c.data_ptr<float>(), 20, false);
  EXPECT_TRUE(c.equal(at::zeros({3, 20})));
}

}  // namespace
}  // namespace slime::kernels::cpu
