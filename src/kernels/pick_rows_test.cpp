#include "kernels/pick_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/gpu/for_tests.h"

namespace slime::kernels {
namespace {

const Tensor& rows_to_pick() {
  static const Tensor rows = at::tensor({3, 0, 3, 2, 3, 0}, at::kLong);
  return rows;
}

TEST(PickRows, GradientsOfARowTakenSeveralTimesAreAdded) {
  const Tensor x = at::arange(8, at::kFloat).view({4, 2}).requires_grad_();
  const Tensor picked = pick_rows(x, rows_to_pick());
  EXPECT_TRUE(picked.equal(x.index_select(0, rows_to_pick())));
  const Tensor weight = at::arange(12, at::kFloat).view({6, 2});
  (picked * weight).sum().backward();
  // Row 0: places 1 and 5, row 2: place 3, row 3: places 0, 2 and 4.
  EXPECT_TRUE(
      x.grad().equal(at::tensor({12.F, 14.F, 0.F, 0.F, 6.F, 7.F, 12.F, 15.F}).view({4, 2})));
}

TEST(PickRows, SumsAndTheirGradientAreTheOtherWayRound) {
  const Tensor x = at::arange(12, at::kFloat).view({6, 2}).requires_grad_();
  const Tensor sums = sum_rows(x, rows_to_pick(), 4);
  EXPECT_TRUE(sums.equal(at::tensor({12.F, 14.F, 0.F, 0.F, 6.F, 7.F, 12.F, 15.F}).view({4, 2})));
  const Tensor weight = at::arange(8, at::kFloat).view({4, 2});
  (sums * weight).sum().backward();
  EXPECT_TRUE(x.grad().equal(weight.index_select(0, rows_to_pick())));
}

/// Many terms of few sums, in every precision and of rows that are no whole packs too.
TEST(PickRows, OnAGpuSumsAreThoseOfTheirOrderEveryTime) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t columns : {1, 6, 64, 1032}) {
      const Tensor x = at::randn({5000, columns}).to(type);
      const Tensor row = at::randint(0, 7, {5000}, at::kLong);
      const Tensor first = at::randn({9, columns});
      Tensor expected = first.to(at::kDouble);
      expected.index_add_(0, row, x.to(at::kDouble));
      Tensor before;
      for (int i = 0; i < 3; ++i) {
        Tensor sum = first.cuda();
        gpu.add_rows_(sum, row.cuda(), x.cuda());
        EXPECT_LT((sum.cpu() - expected).abs().max().item<double>(), 1e-3);
        if (before.defined()) {
          EXPECT_TRUE(sum.equal(before)) << columns << " columns";
        }
        before = sum;
      }
    }
  }
}

}  // namespace
}  // namespace slime::kernels
