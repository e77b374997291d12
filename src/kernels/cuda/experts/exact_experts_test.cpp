/// Training arithmetic of routers and experts: a row has the same choices and bits alone and among others, with and
/// without gradients.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/experts/experts_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/experts.h"

namespace slime::kernels {
namespace {

using Shape = ExpertShape;

constexpr Shape kExactShapes[] = {
    {"qwen3_30b", 2048, 768, 128, {8, false, true, 1}, false, 0},
    {"sigmoid", 1024, 352, 160, {8, true, true, 2.5}, true, 0.1},
    {"not_normalised", 288, 88, 13, {2, false, false, 1}, false, 0},
    {"many", 320, 24, 300, {6, false, true, 1}, false, 0},
};

/// Some rows of all, by begin and count: each count up to a tile of the router, and more.
std::vector<std::pair<int64_t, int64_t>> pieces_of(int64_t rows) {
  std::vector<std::pair<int64_t, int64_t>> pieces;
  std::mt19937 random(3);
  for (const int64_t count : {1, 2, 7, 16, 17, 31, 32, 33, 64, 129, 300, 1000})
    for (int round = 0; round < 3; ++round)
      pieces.emplace_back(static_cast<int64_t>(random() % static_cast<uint64_t>(rows - count)),
                          count);
  return pieces;
}

class GpuExactExperts : public ::testing::TestWithParam<Shape> {
 protected:
  static constexpr int64_t kRows = 1300;

  void SetUp() override {
    SLIME_NEEDS_GPU();
    at::manual_seed(6);
    const RoutedExperts made = random_experts(GetParam());
    experts_ = experts_on_gpu(made);
    x_TH_ = to_gpu(numbers({kRows, GetParam().hidden}, at::kBFloat16));
    kernels_ = expert_kernels_for(x_TH_);
    const Shape& shape = GetParam();
    if (!kernels_->has_exact_experts(
            {shape.hidden, shape.experts, shape.width, shape.rule.per_token}))
      GTEST_SKIP() << "this GPU has no such kernels";
  }

  ExpertStack stack() const {
    ExpertStack stack;
    const auto rows_of = [](const Matrix& weight) { return Matrix(weight.values.flatten(0, 1)); };
    stack.gate_up.matrix = rows_of(experts_.gate_up);
    stack.down.matrix = rows_of(experts_.down);
    return stack;
  }

  /// What the layer does with these rows.
  Tensor computed(const Tensor& x_TH, bool has_gradients) const {
    const RouterChoices choices = kernels_->exact_choices(x_TH, experts_);
    const ExpertVisits visits =
        group_by_expert(choices.expert_TK.to(at::kLong), GetParam().experts);
    at::AutoGradMode grad_mode(has_gradients);
    if (!has_gradients) return inferred_experts(x_TH, visits, choices.weight_TK, stack());
    const Tensor leaf_TH = x_TH.detach().clone().requires_grad_();
    return slime::kernels::experts(leaf_TH, visits, choices.weight_TK, stack()).detach();
  }

  RoutedExperts experts_;
  Tensor x_TH_;
  const ExpertKernels* kernels_ = nullptr;
};

/// One kernel with tiles of 32 rows, in which a row has a line of each mma and a warp that chooses for it alone.
TEST_P(GpuExactExperts, RoutersGiveARowTheSameVisitsAmongAnyOthers) {
  const RouterChoices whole = kernels_->exact_choices(x_TH_, experts_);
  for (const auto& [begin, count] : pieces_of(kRows)) {
    const RouterChoices some = kernels_->exact_choices(x_TH_.narrow(0, begin, count), experts_);
    EXPECT_TRUE(some.expert_TK.equal(whole.expert_TK.narrow(0, begin, count)))
        << "rows " << begin << " .. " << begin + count - 1;
    EXPECT_TRUE(some.weight_TK.equal(whole.weight_TK.narrow(0, begin, count)))
        << "rows " << begin << " .. " << begin + count - 1;
  }
  const Tensor order = at::randperm(kRows, at::TensorOptions(at::kLong).device(at::kCUDA));
  const RouterChoices mixed = kernels_->exact_choices(x_TH_.index_select(0, order), experts_);
  EXPECT_TRUE(mixed.expert_TK.equal(whole.expert_TK.index_select(0, order)));
  EXPECT_TRUE(mixed.weight_TK.equal(whole.weight_TK.index_select(0, order)));
}

TEST_P(GpuExactExperts, RoutersChooseByTheRule) {
  const RouterChoices choices = kernels_->exact_choices(x_TH_, experts_);
  RoutedExperts there = experts_;
  there.router_EH = Matrix(experts_.router_EH.values.cpu());
  if (there.selection_bias_E.defined()) there.selection_bias_E = there.selection_bias_E.cpu();
  const Choice expected = choice_of(x_TH_.cpu(), there);
  const RouterRule& rule = GetParam().rule;
  Tensor weight_TK = expected.score_TK;
  if (rule.normalizes) weight_TK = weight_TK / weight_TK.sum(-1, true);
  const Tensor is_same_T = choices.expert_TK.cpu().eq(expected.expert_TK).all(1);
  // Sums in float32 choose otherwise where two scores are next to each other.
  EXPECT_GT(is_same_T.sum().item<int64_t>(), kRows * 98 / 100);
  const Tensor same = is_same_T.nonzero().squeeze(1);
  EXPECT_LT(relative_error(choices.weight_TK.cpu().index_select(0, same),
                           (weight_TK * rule.scaling).index_select(0, same)),
            1e-4);
}

/// Neighbours have one row of the router's matrix, so that sums of the same numbers in the same order tie.
TEST_P(GpuExactExperts, EqualScoresChooseTheLowestNumbers) {
  const int64_t experts = GetParam().experts, visits = GetParam().rule.per_token;
  RoutedExperts tied = experts_;
  tied.router_EH = Matrix(experts_.router_EH.values.index_select(
      0, at::arange(experts, at::TensorOptions(at::kLong).device(at::kCUDA)).div(3, "floor")));
  tied.selection_bias_E = Tensor();
  const Tensor chosen_TK = kernels_->exact_choices(x_TH_, tied).expert_TK.cpu().to(at::kLong);
  const auto* chosen = chosen_TK.const_data_ptr<int64_t>();
  int64_t wrong = 0;
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t k = 0; k < visits; ++k) {
      const int64_t expert = chosen[t * visits + k];
      // Behind the one before it in its group of three.
      wrong += expert % 3 != 0 && (k == 0 || chosen[t * visits + k - 1] != expert - 1);
    }
  }
  EXPECT_EQ(wrong, 0);
  tied.router_EH = Matrix(at::zeros_like(experts_.router_EH.values));
  EXPECT_TRUE(kernels_->exact_choices(x_TH_, tied)
                  .expert_TK.cpu()
                  .eq(at::arange(visits, at::kInt))
                  .all()
                  .item<bool>());
}

TEST_P(GpuExactExperts, ChoicesAreRecorded) {
  RoutedExperts recorded = experts_;
  const Tensor made_TK =
      at::full({kRows, GetParam().rule.per_token}, -1, x_TH_.options().dtype(at::kShort));
  recorded.chosen_TK = made_TK;
  const RouterChoices choices = kernels_->exact_choices(x_TH_, recorded);
  EXPECT_TRUE(made_TK.to(at::kInt).equal(choices.expert_TK));
  EXPECT_EQ(kernels_->exact_choices(x_TH_.narrow(0, 0, 0), experts_).expert_TK.size(0), 0);
}

/// In a grouped product a row is a line of an expert's tile, whose sums go from the first input to the last in 16s,
/// whichever line it is and whatever the others hold; activation and sum over the visits have a row by itself.
TEST_P(GpuExactExperts, GiveARowTheSameBitsAmongAnyOthersWithAndWithoutGradients) {
  const ArithmeticScope scope(kernels_for(x_TH_), Arithmetic::kTraining);
  EXPECT_FALSE(kernels_->has_routed_experts(x_TH_.narrow(0, 0, 4), experts_));
  const Tensor whole = computed(x_TH_, false);
  EXPECT_TRUE(computed(x_TH_, true).equal(whole));
  for (const auto& [begin, count] : pieces_of(kRows)) {
    for (const bool has_gradients : {false, true})
      EXPECT_TRUE(computed(x_TH_.narrow(0, begin, count), has_gradients)
                      .equal(whole.narrow(0, begin, count)))
          << "rows " << begin << " .. " << begin + count - 1;
  }
  const Tensor order = at::randperm(kRows, at::TensorOptions(at::kLong).device(at::kCUDA));
  EXPECT_TRUE(computed(x_TH_.index_select(0, order), false).equal(whole.index_select(0, order)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuExactExperts, ::testing::ValuesIn(kExactShapes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace slime::kernels
