#include "kernels/unit_lower.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

double largest_of(const Tensor& x) { return x.abs().max().item<double>(); }

TEST(UnitLower, InverseTimesMatrixIsOne) {
  at::manual_seed(3);
  for (const int64_t size : {1, 2, 8, 32}) {
    const Tensor lower = at::randn({5, size, size}, at::kDouble).mul_(0.3).tril(-1);
    const Tensor one = at::eye(size, at::kDouble);
    EXPECT_LT(largest_of(at::matmul(inverse_of_unit_lower(lower), lower + one) - one), 1e-11)
        << size;
  }
}

/// All ones: powers of the matrix grow to 10^8 and cancel, its inverse is 1 beside -1.
TEST(UnitLower, KeepsItsPrecisionWherePowersCancel) {
  const Tensor lower = at::ones({1, 32, 32}, at::kFloat).tril(-1), one = at::eye(32, at::kFloat);
  const Tensor expected = one - at::ones({31}, at::kFloat).diag(-1);
  EXPECT_EQ(largest_of(inverse_of_unit_lower(lower)[0] - expected), 0);
}

}  // namespace
}  // namespace slime::kernels
