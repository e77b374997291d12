#include "kernels/adapters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "kernels/device.h"
#include "kernels/linear.h"

namespace slime::kernels {
namespace {

constexpr int64_t kRows = 5, kInputs = 6, kOutputs = 8, kRank = 2;

Tensor random(std::vector<int64_t> shape) { return at::empty(shape, at::kDouble).uniform_(-1, 1); }

/// A matrix of two fused ones, with a pair for each and another adapter for the second alone.
struct Fused {
  AdapterRows rows;
  LowRankPair first, second, other;
  MatrixAdapters adapters;
  MatrixParam weight;

  Fused() {
    at::manual_seed(1);
    for (LowRankPair* pair : {&first, &second, &other}) {
      const bool is_first = pair == &first;
      pair->begin = is_first ? 0 : 3;
      pair->end = is_first ? 3 : kOutputs;
      pair->a = {random({kRank, kInputs}), at::zeros({kRank, kInputs}, at::kDouble)};
      const std::vector<int64_t> b{pair->end - pair->begin, kRank};
      pair->b = {random(b), at::zeros(b, at::kDouble)};
      pair->scale = 0.7;
      pair->number = pair->begin + 1;
    }
    adapters.of_slot = {{&first, &second}, {&other}};
    adapters.rows = &rows;
    weight.matrix.values = random({kOutputs, kInputs});
    weight.matrix.adapters = &adapters;
  }

  void to(at::ScalarType type) {
    weight.matrix.values = weight.matrix.values.to(type);
    for (LowRankPair* pair : {&first, &second, &other})
      for (Param* param : {&pair->a, &pair->b})
        *param = {param->value.to(type), param->grad.to(type)};
  }

  /// W + s B A of a slot.
  Tensor merged(int64_t slot) const {
    Tensor sum = weight.matrix.values.clone();
    for (const LowRankPair* pair : adapters.of_slot[static_cast<size_t>(slot)])
      sum.narrow(0, pair->begin, pair->end - pair->begin)
          .add_(pair->scale * at::matmul(pair->b.value, pair->a.value));
    return sum;
  }
};

TEST(AdaptedProducts, AreThoseOfTheMergedMatrix) {
  const at::NoGradGuard no_grad;
  Fused fused;
  const Tensor x = random({kRows, kInputs});
  const auto near = [](const Tensor& a, const Tensor& b) {
    EXPECT_LT((a - b).abs().max().item<double>(), 1e-12);
  };
  near(linear(x, fused.weight), at::matmul(x, fused.merged(0).t()));
  // A range of the outputs meets a part of both pairs.
  near(linear(x, fused.weight.rows(2, 4)), at::matmul(x, fused.merged(0).narrow(0, 2, 4).t()));
  fused.rows.is_on = false;
  near(linear(x, fused.weight), at::matmul(x, fused.weight.matrix.values.t()));
}

/// In float32, as engines compute: products in float64 are a library's, whose bits depend on the number of rows.
TEST(AdaptedProducts, OfRowsWithSeveralAdaptersAreThoseOfEachAlone) {
  const at::NoGradGuard no_grad;
  Fused fused;
  fused.to(at::kFloat);
  const Tensor x = random({kRows, kInputs}).to(at::kFloat);
  const auto with = [&](std::vector<AdapterRows::Share> shares) {
    fused.rows.shares = std::move(shares);
    return linear(x, fused.weight);
  };
  const Tensor of_first = at::tensor({0, 3}, at::kLong), of_other = at::tensor({4}, at::kLong);
  const Tensor mixed = with({{0, of_first}, {1, of_other}});
  EXPECT_TRUE(mixed.index_select(0, of_first).equal(with({{0, {}}}).index_select(0, of_first)));
  EXPECT_TRUE(mixed.index_select(0, of_other).equal(with({{1, {}}}).index_select(0, of_other)));
  const Tensor of_none = at::tensor({1, 2}, at::kLong);
  EXPECT_TRUE(mixed.index_select(0, of_none).equal(with({}).index_select(0, of_none)));
}

/// The gradients of x, A and B against differences, with the same numbers dropped in both passes.
TEST(AdaptedProducts, DropTheSameNumbersInBothPasses) {
  Fused fused;
  fused.rows.dropout = 0.5;
  fused.rows.pass = 7;
  const Tensor weights = random({kRows, kOutputs});
  const auto loss = [&](const Tensor& x) { return (linear(x, fused.weight) * weights).sum(); };
  const Tensor x = random({kRows, kInputs}).requires_grad_();
  loss(x).backward();

  constexpr double kStep = 1e-6;
  const auto slope = [&](const Tensor& of, int64_t i) {
    const at::NoGradGuard no_grad;
    Tensor flat = of.view({-1});
    const auto at_offset = [&](double offset) {
      const double before = flat[i].item<double>();
      flat[i] = before + offset;
      const at::AutoGradMode grad(true);  // passes without gradients drop nothing
      const double value = loss(x.detach().clone().requires_grad_()).item<double>();
      flat[i].detach().fill_(before);
      return value;
    };
    return (at_offset(kStep) - at_offset(-kStep)) / (2 * kStep);
  };
  for (const Param* param : {&fused.first.a, &fused.first.b, &fused.second.a, &fused.second.b}) {
    for (int64_t i = 0; i < param->value.numel(); ++i)
      EXPECT_NEAR(param->grad.view({-1})[i].item<double>(), slope(param->value, i), 1e-6);
  }
  const Tensor numbers = x.detach();
  for (int64_t i = 0; i < numbers.numel(); ++i)
    EXPECT_NEAR(x.grad().view({-1})[i].item<double>(), slope(numbers, i), 1e-6);

  // Another pass drops others; none without gradients.
  const double first = loss(x).item<double>();
  fused.rows.pass = 8;
  EXPECT_NE(loss(x).item<double>(), first);
  const at::NoGradGuard no_grad;
  EXPECT_NEAR(loss(x).item<double>(),
              (at::matmul(x, fused.merged(0).t()) * weights).sum().item<double>(), 1e-12);
}

/// Rows 0 and 3 of slot 0, row 1 of none, row 2 of slot 1.
AdapterTiles tiles() {
  const Tensor row_N = at::full({4 * AdapterTiles::kRows}, -1, at::kInt);
  const auto put = [&](int64_t tile, int64_t place, int64_t row) {
    row_N[tile * AdapterTiles::kRows + place].fill_(row);
  };
  put(0, 0, 1);
  put(1, 0, 0);
  put(1, 1, 3);
  put(2, 5, 2);
  return {at::tensor({-1, 0, 1, -1}, at::kInt), row_N};
}

TEST(AdapterTiles, SayTheSlotOfEachRow) {
  EXPECT_TRUE(tiles().slots().narrow(0, 0, 4).equal(at::tensor({0, -1, 1, 0}, at::kLong)));
  EXPECT_TRUE(tiles().slots().narrow(0, 4, 60).eq(-1).all().item<bool>());
  AdapterRows rows;
  rows.tiles = tiles();
  const AdapterRows picked = rows.of(at::tensor({2, 2, 1, 3}, at::kLong));
  EXPECT_TRUE(picked.slot_S.equal(at::tensor({1, 1, -1, 0}, at::kLong)));
  EXPECT_FALSE(picked.takes_one());
}

TEST(AdapterTiles, GiveAnEmbeddingWhatSharesGive) {
  constexpr int64_t kWords = 9;
  AdapterRows rows;
  LowRankPair one, other;
  for (LowRankPair* pair : {&one, &other}) {
    pair->end = kOutputs;
    pair->a.value = random({kRank, kWords});
    pair->b.value = random({kOutputs, kRank});
    pair->scale = 0.7;
  }
  MatrixAdapters adapters{.of_slot = {{&one}, {&other}}, .rows = &rows};
  const Tensor ids = at::tensor({4, 4, 4, 7}, at::kLong);
  const auto added = [&] {
    const Tensor y = at::zeros({4, kOutputs}, at::kDouble);
    add_embedded_pairs_(y, ids, adapters);
    return y;
  };
  rows.shares = {{0, at::tensor({0, 3}, at::kLong)}, {1, at::tensor({2}, at::kLong)}};
  const Tensor expected = added();
  EXPECT_GT(expected.abs().max().item<double>(), 0.1);
  rows.shares.clear();
  rows.tiles = tiles();
  EXPECT_TRUE(at::allclose(added(), expected));
  EXPECT_EQ(added()[1].abs().max().item<double>(), 0);
}

TEST(AdaptedProducts, AreNoneOfADevice) {
  const at::NoGradGuard no_grad;
  Fused fused;
  EXPECT_THROW(kernels_for(fused.weight.matrix.values)
                   .linear_input_grad(random({kRows, kOutputs}), fused.weight.matrix.plain()),
               BugError);
}

}  // namespace
}  // namespace slime::kernels
