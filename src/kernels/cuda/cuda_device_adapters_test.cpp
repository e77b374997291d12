/// Products of matrices with adapters on the GPU, against the same in float64 on the CPU.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/adapters.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/linear.h"

namespace slime::kernels {
namespace {

/// [q; k; v] of a small model: a pair for q and one for v, k has none.
struct Adapted {
  AdapterRows rows;
  LowRankPair q, v;
  MatrixAdapters adapters;
  MatrixParam weight;

  static constexpr int64_t kInputs = 1160, kOutputs = 320;  // three splits, the last one ragged

  Adapted(int64_t rank, at::ScalarType type, int64_t inputs = kInputs) {
    q.begin = 0, q.end = 192, v.begin = 256, v.end = kOutputs;
    for (LowRankPair* pair : {&q, &v}) {
      const int64_t outputs = pair->end - pair->begin;
      pair->a = {0.05 * numbers({rank, inputs}, at::kFloat), at::zeros({rank, inputs})};
      pair->b = {0.05 * numbers({outputs, rank}, at::kFloat), at::zeros({outputs, rank})};
      pair->scale = 2;
      pair->number = static_cast<uint64_t>(pair->begin + 1);
    }
    adapters.of_slot = {{&q, &v}};
    adapters.rows = &rows;
    weight.matrix.values = 0.05 * numbers({kOutputs, inputs}, at::kFloat);
    weight.matrix.values = weight.matrix.values.to(type);
    weight.matrix.adapters = &adapters;
  }
  Adapted(const Adapted&) = delete;

  /// The same numbers elsewhere, or in another precision.
  void become(const std::function<Tensor(const Tensor&)>& changed) {
    weight.matrix.values = changed(weight.matrix.values);
    for (LowRankPair* pair : {&q, &v}) {
      for (Param* param : {&pair->a, &pair->b})
        *param = {changed(param->value), changed(param->grad)};
    }
  }
};

struct Results {
  Tensor y, dx;
  std::vector<Tensor> grads;
};

Results pass(Adapted& adapted, const Tensor& x, const Tensor& dy) {
  Results out;
  const Tensor leaf = x.clone().requires_grad_(true);
  const Tensor y = linear(leaf, adapted.weight, {});
  y.backward(dy);
  out.y = y.detach();
  out.dx = leaf.grad();
  for (const LowRankPair* pair : {&adapted.q, &adapted.v})
    for (const Param* param : {&pair->a, &pair->b}) out.grads.push_back(param->grad);
  return out;
}

void expect_equal_to_twin(at::ScalarType type, int64_t rank, int64_t rows) {
  // Factors multiply in the precision of x: of float32 too, where LibTorch may take TF32.
  const double bound = type == at::kFloat ? 2e-3 : type == at::kBFloat16 ? 6e-3 : 1e-3;
  Adapted adapted(rank, type);
  const Tensor x = numbers({rows, Adapted::kInputs}, type);
  const Tensor dy = numbers({rows, Adapted::kOutputs}, type);
  adapted.become([](const Tensor& t) { return t.to(at::kDouble); });
  const Results exact = pass(adapted, wide(x), wide(dy));
  for (LowRankPair* pair : {&adapted.q, &adapted.v})
    for (Param* param : {&pair->a, &pair->b}) param->grad = at::zeros_like(param->grad);
  adapted.become([](const Tensor& t) { return t.to(at::kCUDA, at::kFloat); });
  adapted.weight.matrix.values = adapted.weight.matrix.values.to(type);
  const Results made = pass(adapted, to_gpu(x), to_gpu(dy));
  const auto where = fmt::format("{} rank {} rows {}", at::toString(type), rank, rows);
  EXPECT_LT(relative_error(made.y, exact.y), bound) << where;
  EXPECT_LT(relative_error(made.dx, exact.dx), bound) << where;
  if (rank * rows == 1) return;  // a single h may be as small as its rounding
  for (std::size_t i = 0; i < made.grads.size(); ++i)
    EXPECT_LT(relative_error(made.grads[i], exact.grads[i]), bound) << where << " grad " << i;
}

TEST(CudaAdapters, ProductsAndGradientsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  open_gpu();
  for (const auto type : kGpuTypes) {
    for (const int64_t rank : {1, 8, 32, 72})
      for (const int64_t rows : {1, 16, 17, 64, 65, 300}) expect_equal_to_twin(type, rank, rows);
  }
}

/// Enough for the kernels of training: a thread block of 128 rows for each multiprocessor.
TEST(CudaAdapters, ManyRowsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  open_gpu();
  constexpr int64_t kRows = 17'001;
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const int64_t rank : {8, 32, 72}) expect_equal_to_twin(type, rank, kRows);
}

TEST(CudaAdapters, ARowHasTheSameAdditionBesideAnyOthers) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  Adapted adapted(32, at::kBFloat16);
  adapted.become([](const Tensor& t) { return t.to(at::kCUDA); });
  const Tensor x = to_gpu(numbers({300, Adapted::kInputs}, at::kBFloat16));
  const Tensor y = to_gpu(numbers({300, Adapted::kOutputs}, at::kFloat));
  const Tensor all = gpu.add_pairs(y.clone(), x, adapted.weight.matrix, at::kBFloat16);
  for (const int64_t rows : {1, 7, 64, 65}) {
    const Tensor some = gpu.add_pairs(y.narrow(0, 0, rows).clone(), x.narrow(0, 0, rows),
                                      adapted.weight.matrix, at::kBFloat16);
    EXPECT_TRUE(some.equal(all.narrow(0, 0, rows))) << rows;
  }
}

/// As gates and ups of prompts: pairs of both, one of more than 32 ranks.
TEST(CudaAdapters, GatedProductsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  open_gpu();
  for (const int64_t rank : {8, 32, 40}) {
    constexpr int64_t kRows = 800, kWholeInputs = 1152;
    Adapted adapted(rank, at::kBFloat16, kWholeInputs);
    const Tensor x = numbers({kRows, kWholeInputs}, at::kBFloat16);
    const Tensor bias = numbers({Adapted::kOutputs}, at::kBFloat16);
    adapted.become([](const Tensor& t) { return t.to(at::kDouble); });
    const Tensor exact = adapted_gated_linear(wide(x), adapted.weight.matrix, wide(bias));
    adapted.rows.is_on = false;
    const Tensor without = adapted_gated_linear(wide(x), adapted.weight.matrix, wide(bias));
    ASSERT_GT(relative_error(without, exact), 0.05) << "the adapters change little";
    adapted.rows.is_on = true;
    adapted.become([](const Tensor& t) { return t.to(at::kCUDA, at::kFloat); });
    adapted.weight.matrix.values = adapted.weight.matrix.values.to(at::kBFloat16);
    const Tensor made = adapted_gated_linear(to_gpu(x), adapted.weight.matrix, to_gpu(bias));
    EXPECT_LT(relative_error(made, exact), 8e-3) << rank;
  }
}

/// Of five experts, one of which no row visits: a pair for all outputs and one for the last ones.
struct AdaptedExperts {
  static constexpr int64_t kExperts = 5, kInputs = 40, kOutputs = 48, kRows = 97;
  static inline const std::vector<int64_t> kStarts{0, 13, 13, 60, 61, kRows};

  AdapterRows rows;
  LowRankPair all, some;
  MatrixAdapters adapters;
  Tensor x_SI, y_SO, dy_SO, dx_SI;

  AdaptedExperts(int64_t rank, at::ScalarType type) {
    all.end = some.end = kOutputs;
    some.begin = 24;
    for (LowRankPair* pair : {&all, &some}) {
      pair->experts = kExperts;
      pair->scale = 2;
      pair->a.value = 0.2 * numbers({kExperts * rank, kInputs}, at::kFloat);
      pair->b.value = 0.2 * numbers({kExperts * (pair->end - pair->begin), rank}, at::kFloat);
      for (Param* param : {&pair->a, &pair->b}) param->grad = at::zeros_like(param->value);
    }
    adapters.of_slot = {{&all, &some}};
    adapters.rows = &rows;
    x_SI = numbers({kRows, kInputs}, type);
    y_SO = numbers({kRows, kOutputs}, type);
    dy_SO = numbers({kRows, kOutputs}, type);
    dx_SI = numbers({kRows, kInputs}, type);
  }
  AdaptedExperts(const AdaptedExperts&) = delete;

  std::vector<Tensor> pass(const GroupStarts& starts) {
    add_grouped_pairs_(y_SO, x_SI, adapters, rows, starts);
    add_grouped_pairs_input_grad_(dx_SI, dy_SO, adapters, starts);
    add_grouped_pairs_grad_(adapters, dy_SO, x_SI, starts);
    return {y_SO, dx_SI, all.a.grad, all.b.grad, some.a.grad, some.b.grad};
  }
  void become(const std::function<Tensor(const Tensor&)>& rows_are,
              const std::function<Tensor(const Tensor&)>& factors_are) {
    for (Tensor* tensor : {&x_SI, &y_SO, &dy_SO, &dx_SI}) *tensor = rows_are(*tensor);
    for (LowRankPair* pair : {&all, &some})
      for (Param* param : {&pair->a, &pair->b})
        *param = {factors_are(param->value), factors_are(param->grad)};
  }
};

TEST(CudaAdapters, PairsOfExpertsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  open_gpu();
  const GroupStarts on_gpu(to_gpu(at::tensor(AdaptedExperts::kStarts, at::kInt)));
  for (const auto type : kGpuTypes) {
    const double bound = type == at::kFloat ? 1e-5 : type == at::kBFloat16 ? 6e-3 : 1e-3;
    for (const int64_t rank : {1, 8, 33}) {
      at::manual_seed(5);
      AdaptedExperts twin(rank, type);
      at::manual_seed(5);
      AdaptedExperts adapted(rank, type);
      const auto to_double = [](const Tensor& t) { return t.to(at::kDouble); };
      const auto to_device = [](const Tensor& t) { return to_gpu(t); };
      twin.become(to_double, to_double);
      adapted.become(to_device, to_device);
      const std::vector<Tensor> exact = twin.pass(AdaptedExperts::kStarts),
                                made = adapted.pass(on_gpu);
      for (std::size_t i = 0; i < exact.size(); ++i)
        EXPECT_LT(relative_error(made[i], exact[i]), bound)
            << fmt::format("{} rank {}: {}", at::toString(type), rank, i);
    }
  }
}

/// Each visit's row takes what its row of the pass does.
TEST(CudaAdapters, RowsOfExpertsTakeAdaptersOfTheirOwn) {
  SLIME_NEEDS_GPU();
  open_gpu();
  const GroupStarts on_gpu(to_gpu(at::tensor(AdaptedExperts::kStarts, at::kInt)));
  at::manual_seed(5);
  AdaptedExperts adapted(8, at::kBFloat16);
  adapted.adapters.of_slot = {{&adapted.all}, {&adapted.some}};
  const auto to_device = [](const Tensor& t) { return to_gpu(t); };
  adapted.become(to_device, to_device);
  const Tensor before = adapted.y_SO.clone();
  const auto with = [&](const AdapterRows& rows) {
    const Tensor y_SO = before.clone();
    add_grouped_pairs_(y_SO, adapted.x_SI, adapted.adapters, rows, on_gpu);
    return y_SO;
  };
  AdapterRows first, second, mixed;
  second.shares = {{1, {}}};
  const Tensor slot_S = at::arange(AdaptedExperts::kRows, at::kLong).remainder(3) - 1;
  mixed.slot_S = to_gpu(slot_S);
  const Tensor alone[3] = {before, with(first), with(second)}, together = with(mixed);
  for (int64_t row = 0; row < AdaptedExperts::kRows; ++row)
    EXPECT_TRUE(together[row].equal(alone[row % 3][row])) << row;
}

/// Rows take slot 0, slot 1 or none, by turns.
AdapterTiles tiles_by_turns(int64_t num_rows) {
  std::vector<int32_t> slots, rows;
  for (const int32_t slot : {-1, 0, 1}) {
    for (int64_t row = slot + 1; row < num_rows; row += 3) {
      if (slots.empty() || slots.back() != slot || rows.back() >= 0) {
        slots.push_back(slot);
        rows.resize(rows.size() + AdapterTiles::kRows, -1);
      }
      *std::find(rows.end() - AdapterTiles::kRows, rows.end(), -1) = static_cast<int32_t>(row);
    }
  }
  return {to_gpu(slots, at::kInt), to_gpu(rows, at::kInt)};
}

TEST(CudaAdapters, LogitsOfRowsWithSeveralAreThoseOfEachOnesOwn) {
  SLIME_NEEDS_GPU();
  open_gpu();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    Adapted one(8, type), other(40, type);
    other.weight.matrix.values = one.weight.matrix.values;
    constexpr int64_t kRows = 70;
    const Tensor x = numbers({kRows, Adapted::kInputs}, type);
    const auto become = [&](const std::function<Tensor(const Tensor&)>& changed) {
      one.become(changed);
      other.become(changed);
    };
    become([](const Tensor& t) { return t.to(at::kDouble); });
    const Tensor exact[3] = {adapted_logits(wide(x), one.weight.matrix.without_adapters()),
                             adapted_logits(wide(x), one.weight.matrix),
                             adapted_logits(wide(x), other.weight.matrix)};
    become([](const Tensor& t) { return t.to(at::kCUDA, at::kFloat); });
    one.weight.matrix.values = one.weight.matrix.values.to(type);
    one.adapters.of_slot = {{&one.q, &one.v}, {&other.q, &other.v}};
    const auto* tables = dynamic_cast<const AdapterTables*>(&kernels_for(one.weight.matrix.values));
    ASSERT_NE(tables, nullptr);
    MatrixAdapters* const placed[] = {&one.adapters};
    tables->place_pairs(placed);
    one.rows.tiles = tiles_by_turns(kRows);
    const Tensor made = adapted_logits(to_gpu(x), one.weight.matrix).cpu();
    EXPECT_EQ(made.scalar_type(), at::kFloat);
    for (int64_t row = 0; row < kRows; ++row)
      EXPECT_LT(relative_error(made[row], exact[row % 3][row]), 6e-3) << row;
  }
}

}  // namespace
}  // namespace slime::kernels
