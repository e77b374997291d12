// The kernels beside products of matrices with adapters, run by the block executor, against sums in float64.
#define SLIME_KERNELS_ON_CPU

#include "kernels/cuda/products/low_rank.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/tensor.h"
#include "kernels/block_executor/block_executor.h"

namespace slime::kernels::cuda {
namespace {

/// Pairs of q, k and v: ranks that fill a step, that do not, and one.
struct Pair {
  int begin, end, rank;
};
constexpr int kInputs = 552;  // a split and a ragged second
const std::vector<Pair> kPairs{{0, 72, 32}, {72, 88, 40}, {88, 104, 1}};
constexpr int kOutputs = 104;

class LowRank : public testing::TestWithParam<BlockExecutor::Options> {
 protected:
  LowRank() : executor_(GetParam()) {
    at::manual_seed(11);
    for (const Pair& pair : kPairs) {
      a_.push_back(0.1 * at::randn({pair.rank, kInputs}));
      b_.push_back(0.1 * at::randn({pair.end - pair.begin, pair.rank}));
    }
  }

  static constexpr float kScale = 0.5F;

  /// Of all pairs: x A^T (or, turned, dy B), and the way up.
  LowRankFactors factors_down(bool is_back) const {
    LowRankFactors factors = factors_of(!is_back ? a_ : b_);
    for (int i = 0; i < factors.count; ++i) {
      LowRankFactor& factor = factors.of[i];
      factor.is_turned = !is_back;
      factor.pitch = is_back ? factor.rank : kInputs;
      factor.begin = is_back ? kPairs[i].begin : 0;
      factor.end = is_back ? kPairs[i].end : kInputs;
      factor.splits = factor.splits_of_range();
    }
    return factors;
  }
  LowRankFactors factors_up(bool is_back, const LowRankFactors& down) const {
    LowRankFactors factors = factors_of(!is_back ? b_ : a_);
    for (int i = 0; i < factors.count; ++i) {
      LowRankFactor& factor = factors.of[i];
      factor.is_turned = is_back;
      factor.pitch = is_back ? kInputs : factor.rank;
      factor.begin = is_back ? 0 : kPairs[i].begin;
      factor.end = is_back ? kInputs : kPairs[i].end;
      factor.scale = kScale;
      factor.splits = down.of[i].splits;
    }
    return factors;
  }

  /// h of all splits, [S, T, R].
  Tensor down(const Tensor& x, const LowRankFactors& factors) {
    const int splits = 2;
    const Tensor h = at::full({splits, x.size(0), factors.ranks}, NAN);
    LowRankDown call;
    call.x_TI = x.data_ptr();
    call.pitch = x.size(1);
    call.rows = static_cast<int>(x.size(0));
    call.factors = factors;
    call.h_pitch = factors.ranks;
    call.h_STR = h.data_ptr<float>();
    low_rank_down(Number::kBFloat16, call, &executor_);
    return h;
  }
  Tensor up(const Tensor& h, const Tensor& y, at::ScalarType precision,
            const LowRankFactors& factors) {
    const Tensor out = at::empty(y.sizes(), precision);
    LowRankUp call;
    call.h_STR = h.data_ptr<float>();
    call.h_pitch = static_cast<int>(h.size(-1));
    call.rows = static_cast<int>(y.size(0));
    call.outputs = static_cast<int>(y.size(1));
    call.factors = factors;
    call.y_TO = y.data_ptr();
    call.is_y_float = y.scalar_type() == at::kFloat;
    call.out_TO = out.data_ptr();
    call.is_out_float = precision == at::kFloat;
    low_rank_up(Number::kBFloat16, call, &executor_);
    return out;
  }

  /// What pairs add by itself; `h` of one split.
  Tensor fill(const Tensor& h, int64_t outputs, const LowRankFactors& factors) {
    const Tensor out = at::full({h.size(0), outputs}, NAN, at::kBFloat16);
    LowRankFill call;
    call.h_TR = h.data_ptr<float>();
    call.h_pitch = static_cast<int>(h.size(1));
    call.rows = static_cast<int>(h.size(0));
    call.outputs = static_cast<int>(outputs);
    call.factors = factors;
    call.out_TO = out.data_ptr();
    low_rank_fill(Number::kBFloat16, call, &executor_);
    return out;
  }

  /// y + scale (x A^T) B^T in float64, of factors that are rounded as the kernels do.
  Tensor expected(const Tensor& x, const Tensor& y) const {
    Tensor sum = y.to(at::kDouble);
    for (std::size_t i = 0; i < kPairs.size(); ++i) {
      const Tensor h = at::mm(x.to(at::kDouble), narrow(a_[i]).t());
      sum.narrow(1, kPairs[i].begin, kPairs[i].end - kPairs[i].begin)
          .add_(at::mm(h, narrow(b_[i]).t()), kScale);
    }
    return sum;
  }
  Tensor expected_back(const Tensor& dy, const Tensor& dx) const {
    Tensor sum = dx.to(at::kDouble);
    for (std::size_t i = 0; i < kPairs.size(); ++i) {
      const Tensor part =
          dy.to(at::kDouble).narrow(1, kPairs[i].begin, kPairs[i].end - kPairs[i].begin);
      sum.add_(at::mm(at::mm(part, narrow(b_[i])), narrow(a_[i])), kScale);
    }
    return sum;
  }
  static Tensor narrow(const Tensor& x) { return x.to(at::kBFloat16).to(at::kDouble); }
  static double difference(const Tensor& a, const Tensor& b) {
    const Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
    return (x - y).abs().max().item<double>() / y.abs().max().item<double>();
  }

  BlockExecutor executor_;
  std::vector<Tensor> a_, b_;

 private:
  static LowRankFactors factors_of(const std::vector<Tensor>& values) {
    LowRankFactors factors;
    for (std::size_t i = 0; i < kPairs.size(); ++i) {
      LowRankFactor& factor = factors.of[factors.count++];
      factor.values = values[i].const_data_ptr<float>();
      factor.rank = kPairs[i].rank;
      factor.column = factors.ranks;
      factors.ranks += kPairs[i].rank;
    }
    return factors;
  }
};

INSTANTIATE_TEST_SUITE_P(Waves, LowRank,
                         testing::Values(BlockExecutor::Options{32, false},
                                         BlockExecutor::Options{64, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.wave_lanes) +
                                  (info.param.is_descending ? "Down" : "Up");
                         });

TEST_P(LowRank, IsAddedBeforeTheResultIsRounded) {
  for (const int64_t rows : {1, 19, 66}) {
    const Tensor x = at::randn({rows, kInputs}).to(at::kBFloat16), y = at::randn({rows, kOutputs});
    const LowRankFactors to_h = factors_down(false), from_h = factors_up(false, to_h);
    const Tensor h = down(x, to_h), twin = expected(x, y);
    EXPECT_LT(difference(up(h, y, at::kFloat, from_h), twin), 1e-4) << rows;
    EXPECT_LT(difference(up(h, y, at::kBFloat16, from_h), twin), 1.0 / 256) << rows;
  }
}

TEST_P(LowRank, ARowHasTheSameBitsBesideAnyOthers) {
  const Tensor x = at::randn({66, kInputs}).to(at::kBFloat16), y = at::randn({66, kOutputs});
  const LowRankFactors to_h = factors_down(false), from_h = factors_up(false, to_h);
  const Tensor all = up(down(x, to_h), y, at::kFloat, from_h);
  for (const int64_t row : {0, 16, 65}) {
    const Tensor alone =
        up(down(x.narrow(0, row, 1), to_h), y.narrow(0, row, 1).contiguous(), at::kFloat, from_h);
    EXPECT_TRUE(at::equal(alone[0], all[row])) << row;
  }
}

TEST_P(LowRank, SumsOfSplitsHaveTheBitsOfTheWayUp) {
  const Tensor x = at::randn({19, kInputs}).to(at::kBFloat16), y = at::randn({19, kOutputs});
  const LowRankFactors to_h = factors_down(false);
  LowRankFactors from_h = factors_up(false, to_h);
  const Tensor h = down(x, to_h), summed = at::empty({19, to_h.ranks});
  const Tensor at_once = up(h, y, at::kFloat, from_h);
  LowRankDown call;
  call.rows = 19;
  call.factors = to_h;
  call.h_pitch = to_h.ranks;
  call.h_STR = h.data_ptr<float>();
  low_rank_sums(call, summed.data_ptr<float>(), &executor_);
  for (int i = 0; i < from_h.count; ++i) from_h.of[i].splits = 1;
  EXPECT_TRUE(at::equal(up(summed, y, at::kFloat, from_h), at_once));
}

/// Forward of all pairs; back of those whose ranks are whole pieces. The last rows and the last split are ragged.
TEST_P(LowRank, OfManyRowsHasTheBitsOfSummedSplits) {
  const Tensor x = at::randn({133, kInputs}).to(at::kBFloat16);
  const Tensor dy = at::randn({133, kOutputs}).to(at::kBFloat16);
  for (const bool is_back : {false, true}) {
    const Tensor& from = is_back ? dy : x;
    LowRankFactors factors = factors_down(is_back);
    if (is_back) factors.count = 2;
    for (LowRankFactor& factor : factors.of) factor.scale = kScale;
    LowRankDown call;
    call.x_TI = from.data_ptr();
    call.pitch = from.size(1);
    call.rows = 133;
    call.factors = factors;
    call.h_pitch = factors.ranks;
    const Tensor splits = down(from, factors), many = at::full({133, factors.ranks}, NAN),
                 summed = many.clone(), scaled = many.to(at::kBFloat16);
    call.h_STR = splits.data_ptr<float>();
    low_rank_sums(call, summed.data_ptr<float>(), &executor_);
    call.h_STR = many.data_ptr<float>();
    call.scaled_TR = scaled.data_ptr();
    ASSERT_TRUE(has_low_rank_down_many(call)) << is_back;
    low_rank_down_many(Number::kBFloat16, call, &executor_);
    const int64_t ranks = is_back ? kPairs[0].rank + kPairs[1].rank : factors.ranks;
    EXPECT_TRUE(at::equal(many.narrow(1, 0, ranks), summed.narrow(1, 0, ranks))) << is_back;
    EXPECT_FALSE(many.narrow(1, 0, ranks).isnan().any().item<bool>()) << is_back;
    EXPECT_TRUE(at::equal(scaled.narrow(1, 0, ranks),
                          (many.narrow(1, 0, ranks) * kScale).to(at::kBFloat16)))
        << is_back;
  }
}

TEST_P(LowRank, OfManyRowsNeedsWholePiecesAndOneAdapter) {
  LowRankDown call;
  call.rows = 133;
  call.factors = factors_down(true);  // one is of a single rank
  EXPECT_FALSE(has_low_rank_down_many(call));
  call.factors.count = 2;
  EXPECT_TRUE(has_low_rank_down_many(call));
  call.by_row.tiles = 1;
  EXPECT_FALSE(has_low_rank_down_many(call));
}

/// Slot 0 has all pairs, slot 1 those of the first outputs with other ranks to come before; some rows take none.
TEST_P(LowRank, RowsThatTakeAdaptersOfTheirOwn) {
  constexpr int kRows = 21;
  const Tensor x = at::randn({kRows, kInputs}).to(at::kBFloat16), y = at::randn({kRows, kOutputs});
  const LowRankFactors to_h = factors_down(false), from_h = factors_up(false, to_h);
  LowRankFactors other_down = to_h, other_up = from_h;
  other_down.of[0] = to_h.of[1], other_up.of[0] = from_h.of[1];
  other_down.count = other_up.count = 1;
  const LowRankFactors down_table[] = {to_h, other_down}, up_table[] = {from_h, other_up};

  // Rows 0, 3, 6, ... take slot 0, rows 1, 4, ... slot 1, the others none; an empty tile.
  std::vector<int> slots{1, -1, 0, -1}, rows(4 * LowRankRows::kRows, -1);
  for (int i = 0; i < 7; ++i) {
    rows[2 * 16 + i] = 3 * i;
    rows[0 * 16 + i] = 3 * i + 1;
    rows[1 * 16 + i] = 3 * i + 2;
  }
  LowRankRows by_row{.slot_N = slots.data(), .row_N = rows.data(), .tiles = 4};
  by_row.most_chunks = to_h.chunks();
  by_row.most_splits = 2;
  const Tensor h = at::full({2, kRows, to_h.ranks}, NAN);
  LowRankDown first;
  first.x_TI = x.data_ptr();
  first.pitch = kInputs;
  first.rows = kRows;
  first.by_row = by_row;
  first.by_row.table = down_table;
  first.h_pitch = to_h.ranks;
  first.h_STR = h.data_ptr<float>();
  low_rank_down(Number::kBFloat16, first, &executor_);
  const Tensor out = at::full({kRows, kOutputs}, NAN);
  LowRankUp second;
  second.h_STR = h.data_ptr<float>();
  second.h_pitch = to_h.ranks;
  second.rows = kRows;
  second.outputs = kOutputs;
  second.by_row = by_row;
  second.by_row.table = up_table;
  second.y_TO = y.data_ptr();
  second.out_TO = out.data_ptr();
  low_rank_up(Number::kBFloat16, second, &executor_);

  const Tensor all = up(down(x, to_h), y, at::kFloat, from_h);
  const Tensor others = up(down(x, other_down), y, at::kFloat, other_up);
  for (int row = 0; row < kRows; ++row) {
    const Tensor& twin = row % 3 == 0 ? all : row % 3 == 1 ? others : y;
    EXPECT_TRUE(at::equal(out[row], twin[row])) << row;
  }
}

/// More rows and, on the way back, more outputs than a thread block has.
TEST_P(LowRank, IsStoredByItself) {
  const Tensor x = at::randn({133, kInputs}).to(at::kBFloat16);
  const Tensor dy = at::randn({133, kOutputs}).to(at::kBFloat16);
  for (const bool is_back : {false, true}) {
    LowRankFactors to_h = factors_down(is_back);
    const Tensor& from = is_back ? dy : x;
    const Tensor h = down(from, to_h).nan_to_num(0).sum(0);
    LowRankFactors from_h = factors_up(is_back, to_h);
    for (int i = 0; i < from_h.count; ++i) from_h.of[i].splits = 1;
    const int64_t outputs = is_back ? kInputs : kOutputs + 8;  // the last ones are no pair's
    const Tensor none = at::zeros({133, outputs});
    const Tensor twin = is_back ? expected_back(from, none) : expected(from, none);
    const Tensor made = fill(h, outputs, from_h);
    EXPECT_LT(difference(made, twin), 1.0 / 256) << is_back;
    if (is_back) continue;
    EXPECT_TRUE(made.narrow(1, kOutputs, 8).eq(0).all().item<bool>());
    // Of fewer pairs all of h is held at once.
    from_h.count = 2;
    const Tensor of_two = fill(h, outputs, from_h);
    const int64_t begin = kPairs[2].begin;
    EXPECT_TRUE(at::equal(of_two.narrow(1, 0, begin), made.narrow(1, 0, begin)));
    EXPECT_TRUE(of_two.narrow(1, begin, outputs - begin).eq(0).all().item<bool>());
  }
}

TEST_P(LowRank, AreMoreInputsOfAProduct) {
  const Tensor x = at::randn({19, kInputs}).to(at::kBFloat16);
  const LowRankFactors to_h = factors_down(false);
  LowRankColumns call;
  call.factors = factors_up(false, to_h);
  const Tensor h = down(x, to_h).sum(0);
  const int outputs = kOutputs + 8, columns = call.columns();  // the last ones are no pair's
  EXPECT_EQ(columns, 64 * 4);
  const Tensor h_TC = at::full({19, columns}, NAN, at::kBFloat16);
  const Tensor b_OC = at::full({outputs, columns}, NAN, at::kBFloat16);
  call.h_TR = h.data_ptr<float>();
  call.h_pitch = to_h.ranks;
  call.rows = 19;
  call.outputs = outputs;
  call.h_TC = h_TC.data_ptr();
  call.b_OC = b_OC.data_ptr();
  low_rank_columns(Number::kBFloat16, call, &executor_);
  const Tensor made = at::mm(h_TC.to(at::kDouble), b_OC.to(at::kDouble).t());
  EXPECT_LT(difference(made, expected(x, at::zeros({19, outputs}))), 1e-4);
}

TEST_P(LowRank, TheGradientOfTheInput) {
  const Tensor dy = at::randn({19, kOutputs}).to(at::kBFloat16);
  const Tensor dx = at::randn({19, kInputs}).to(at::kBFloat16);
  const LowRankFactors to_h = factors_down(true), from_h = factors_up(true, to_h);
  const Tensor made = up(down(dy, to_h), dx, at::kBFloat16, from_h);
  EXPECT_LT(difference(made, expected_back(dy, dx)), 1.0 / 256);
}

}  // namespace
}  // namespace slime::kernels::cuda
