/// Routers and experts of the GPU against plain loops on the CPU. `Large` shapes are not run under
/// compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "kernels/block_chain.h"
#include "kernels/cuda/experts/experts_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/expert_visits.h"
#include "kernels/routed_experts.h"

namespace slime::kernels {
namespace {

using Shape = ExpertShape;

/// Sizes that end within a tile, a stage and a thread block's share; all rows at the same experts.
constexpr Shape kSmall{"Small", 64, 32, 8, {3, false, true, 1}, false, 0};
constexpr Shape kRagged{"Ragged", 288, 88, 13, {2, false, false, 1}, false, 0};
constexpr Shape kBiased{"Biased", 160, 136, 40, {10, true, true, 2.5}, true, 0.2};
constexpr Shape kSameForAll{"SameForAll", 128, 64, 32, {4, true, false, 1}, true, 50};
constexpr Shape kManyExperts{"Many", 320, 24, 300, {8, false, true, 1}, false, 0};

void expect_numbers_of_plain_loops(const Shape& shape, std::initializer_list<int64_t> row_counts) {
  at::manual_seed(11);
  expect_equal_to_loops(shape, random_experts(shape), row_counts,
                        /*most_counted=*/std::max(row_counts));
}

/// Sorted, as int64: equal scores may be chosen in another order.
Tensor sorted_choices(const Tensor& expert_TK) {
  return std::get<0>(expert_TK.cpu().to(at::kLong).sort(-1));
}

class CudaExperts : public ::testing::TestWithParam<Shape> {};

/// Where a caller records them: of two layers one behind the other in each row, and nowhere else.
TEST_P(CudaExperts, ChoicesAreWrittenWhereTheyAreRecorded) {
  SLIME_NEEDS_GPU();
  at::manual_seed(12);
  const RoutedExperts experts = random_experts(GetParam());
  RoutedExperts fast = experts_on_gpu(experts);
  const Tensor x_TH = numbers({200, GetParam().hidden}, at::kBFloat16);
  const Tensor expected = sorted_choices(choice_of(x_TH, experts).expert_TK);
  const ExpertKernels* kernels = expert_kernels_for(to_gpu(x_TH));
  for (const int64_t rows : {1, 2, 33, 200}) {
    const Tensor x = to_gpu(x_TH.narrow(0, 0, rows));
    if (!kernels->has_routed_experts(x, fast)) GTEST_SKIP() << "this GPU has no such kernels";
    const int64_t visits = experts.rule.per_token;
    const Tensor recorded_T3K = at::full({rows, 3, visits}, -7, x.options().dtype(at::kShort));
    fast.chosen_TK = recorded_T3K.select(1, 1);
    const Tensor y_TH = kernels->routed_experts(x, fast);
    EXPECT_EQ(sorted_choices(recorded_T3K.select(1, 1))
                  .ne(expected.narrow(0, 0, rows))
                  .sum()
                  .item<int64_t>(),
              0)
        << rows << " rows";
    EXPECT_TRUE(recorded_T3K.select(1, 0).eq(-7).all().item<bool>());
    EXPECT_TRUE(recorded_T3K.select(1, 2).eq(-7).all().item<bool>());
    fast.chosen_TK = Tensor();
    EXPECT_TRUE(at::equal(kernels->routed_experts(x, fast), y_TH));
  }
}

TEST_P(CudaExperts, EqualLoopsOverTheVisits) {
  SLIME_NEEDS_GPU();
  expect_numbers_of_plain_loops(GetParam(), {1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 130, 256});
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaExperts,
                         ::testing::Values(kSmall, kRagged, kBiased, kSameForAll, kManyExperts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaExpertsLarge, EqualLoopsOverTheVisits) {
  SLIME_NEEDS_GPU();
  expect_numbers_of_plain_loops({"", 2048, 768, 128, {8, false, true, 1}, false, 0},
                                {1, 4, 32, 200});
}

TEST(CudaExperts, ARowThatIsNotANumberVisitsSomeExpertsAndLeavesTheOthersAlone) {
  SLIME_NEEDS_GPU();
  at::manual_seed(5);
  const RoutedExperts fast = experts_on_gpu(random_experts(kSmall));
  Tensor x_TH = to_gpu(numbers({5, kSmall.hidden}, at::kBFloat16));
  const ExpertKernels* kernels = expert_kernels_for(x_TH);
  if (!kernels->has_routed_experts(x_TH, fast)) GTEST_SKIP() << "this GPU has no such kernels";
  const Tensor y_TH = kernels->routed_experts(x_TH, fast);
  x_TH[2].fill_(NAN);
  const Tensor with_nan_TH = kernels->routed_experts(x_TH, fast);
  for (const int64_t row : {0, 1, 3, 4}) EXPECT_TRUE(at::equal(with_nan_TH[row], y_TH[row]));
  EXPECT_TRUE(with_nan_TH[2].isnan().all().item<bool>());
}

void expect_chain(int64_t shared_width) {
  at::manual_seed(3);
  const Shape& shape = kBiased;
  constexpr int64_t kHidden = 192, kAttended = 128, kHeads = 320, kMostRows = 200;
  Shape wider = shape;
  wider.hidden = kHidden;
  RoutedExperts experts = random_experts(wider);
  const auto matrix = [](int64_t outputs, int64_t inputs) {
    return (numbers({outputs, inputs}, at::kFloat) / std::sqrt(static_cast<double>(inputs)))
        .to(at::kBFloat16);
  };
  if (shared_width > 0) {
    experts.shared_gate_up = matrix(2 * shared_width, kHidden);
    experts.shared_down = matrix(kHidden, shared_width);
  }
  const RoutedExperts fast = experts_on_gpu(experts);
  const Tensor attended = numbers({kMostRows, kAttended}, at::kBFloat16),
               residual = numbers({kMostRows, kHidden}, at::kBFloat16),
               output = matrix(kHidden, kAttended), qkv = matrix(kHeads, kHidden),
               post_norm = numbers({kHidden}, at::kBFloat16),
               next_norm = numbers({kHidden}, at::kBFloat16),
               output_bias = numbers({kHidden}, at::kBFloat16),
               qkv_bias = numbers({kHeads}, at::kBFloat16);
  for (const bool is_last : {false, true}) {
    for (const bool has_bias : {false, true}) {
      Tensor sum_TH = wide(residual) + wide(attended).mm(wide(output).t());
      if (has_bias) sum_TH = sum_TH + wide(output_bias);
      // Rounded where the kernels round: another choice of experts would be another result.
      sum_TH = wide(sum_TH.to(at::kBFloat16));
      const Tensor input_TH = twin().rms_norm(sum_TH, wide(post_norm), 1e-5).to(at::kBFloat16);
      const Tensor update_TH = expected_of(input_TH, experts).y_TH;
      const Tensor next_sum_TH = sum_TH + update_TH;
      Tensor heads_TE = twin().rms_norm(next_sum_TH, wide(next_norm), 1e-5).mm(wide(qkv).t());
      if (has_bias) heads_TE = heads_TE + wide(qkv_bias);
      for (const int64_t rows : {1, 2, 3, 16, 40, 64, 65, 200}) {
        BlockChain chain;
        chain.attended_TC = to_gpu(attended).narrow(0, 0, rows);
        chain.residual_TH = to_gpu(residual).narrow(0, 0, rows).clone();
        chain.output_HC = to_gpu(output);
        chain.post_norm_H = to_gpu(post_norm);
        chain.experts = &fast;
        chain.eps = 1e-5;
        if (has_bias) chain.output_bias_H = to_gpu(output_bias);
        if (!is_last) {
          chain.next_norm_H = to_gpu(next_norm);
          chain.next_qkv_EH = to_gpu(qkv);
          if (has_bias) chain.next_qkv_bias_E = to_gpu(qkv_bias);
        }
        const BlockChains* chains = block_chains_for(chain.residual_TH);
        if (!chains->has_block_chain(chain)) GTEST_SKIP() << "this GPU has no chain";
        const Tensor result = chains->block_chain(chain);
        EXPECT_LT(error_of_most_rows(result, (is_last ? update_TH : heads_TE).narrow(0, 0, rows)),
                  0.02)
            << rows << " rows";
        EXPECT_LT(error_of_most_rows(chain.residual_TH,
                                     (is_last ? sum_TH : next_sum_TH).narrow(0, 0, rows)),
                  0.01)
            << rows << " rows";
      }
    }
  }
}

TEST(CudaExperts, ChainFromAttentionToAttention) {
  SLIME_NEEDS_GPU();
  expect_chain(0);
}

TEST(CudaExperts, ChainWithASharedExpert) {
  SLIME_NEEDS_GPU();
  expect_chain(128);
}

TEST(CudaExperts, GroupedProductsEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  at::manual_seed(9);
  constexpr int64_t kExperts = 6;
  const Tensor expert_TK = at::randint(0, kExperts - 1, {70, 3}, at::kLong);  // one has no visits
  const ExpertVisits visits = group_by_expert(expert_TK, kExperts),
                     there = group_by_expert(to_gpu(expert_TK), kExperts);
  EXPECT_TRUE(at::equal(there.token_S.cpu(), visits.token_S));
  EXPECT_TRUE(at::equal(there.place_TK.cpu(), visits.place_TK));
  EXPECT_TRUE(at::equal(there.starts.device_E1.cpu().to(at::kLong),
                        at::tensor(visits.starts.host, at::kLong)));
  const int64_t rows = visits.num_visits();
  for (const auto type : kGpuTypes) {
    for (const int64_t inputs : {24, 30, 136}) {
      const int64_t outputs = 40;
      const Tensor x = numbers({rows, inputs}, type), dy = numbers({rows, outputs}, type),
                   w = numbers({kExperts, outputs, inputs}, type),
                   grad = numbers({kExperts, outputs, inputs}, at::kFloat);
      const double tolerance = type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 4e-3 : 5e-4;
      EXPECT_LT(relative_error(gpu.grouped_linear(to_gpu(x), to_gpu(w), there.starts),
                               twin().grouped_linear(wide(x), wide(w), visits.starts)),
                tolerance);
      EXPECT_LT(relative_error(gpu.grouped_input_grad(to_gpu(dy), to_gpu(w), there.starts),
                               twin().grouped_input_grad(wide(dy), wide(w), visits.starts)),
                tolerance);
      const Tensor fast = to_gpu(grad), exact = wide(grad);
      gpu.add_grouped_weight_grad_(fast, to_gpu(dy), to_gpu(x), there.starts);
      twin().add_grouped_weight_grad_(exact, wide(dy), wide(x), visits.starts);
      EXPECT_LT(relative_error(fast, exact), tolerance);
    }
    const Tensor rows_SH = numbers({rows, 48}, type);
    const Tensor weight = numbers({70, 3}, at::kFloat);
    for (const bool has_weight : {false, true}) {
      const Tensor weights = has_weight ? weight : Tensor();
      EXPECT_LT(relative_error(gpu.sum_visits(to_gpu(rows_SH), there.place_TK, to_gpu(weights)),
                               twin().sum_visits(wide(rows_SH), visits.place_TK, wide(weights))),
                type == at::kFloat ? 2e-6 : 4e-3);
    }
  }
}

TEST(CudaExperts, GroupedProductsOfSeveralTilesEqualTheirTwin) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  at::manual_seed(10);
  constexpr int64_t kExperts = 3, kInputs = 328, kOutputs = 648;
  // 1,000 rows in several tiles of the first two experts, and 64 in one of the third.
  const Tensor expert_TK =
      at::cat({at::randint(0, 2, {1000, 1}, at::kLong), at::full({64, 1}, 2, at::kLong)});
  const ExpertVisits visits = group_by_expert(expert_TK, kExperts),
                     there = group_by_expert(to_gpu(expert_TK), kExperts);
  const int64_t rows = visits.num_visits();
  const Tensor x = numbers({rows, kInputs}, at::kBFloat16),
               dy = numbers({rows, kOutputs}, at::kBFloat16),
               w = numbers({kExperts, kOutputs, kInputs}, at::kBFloat16),
               grad = numbers({kExperts, kOutputs, kInputs}, at::kFloat);
  EXPECT_LT(relative_error(gpu.grouped_linear(to_gpu(x), to_gpu(w), there.starts),
                           twin().grouped_linear(wide(x), wide(w), visits.starts)),
            4e-3);
  EXPECT_LT(relative_error(gpu.grouped_input_grad(to_gpu(dy), to_gpu(w), there.starts),
                           twin().grouped_input_grad(wide(dy), wide(w), visits.starts)),
            4e-3);
  for (const int64_t outputs : {624, 640, 648}) {
    const Tensor gates_ups = w.narrow(1, 0, outputs).contiguous();
    EXPECT_LT(
        relative_error(gpu.grouped_gated_linear(to_gpu(x), to_gpu(gates_ups), there.starts),
                       twin().grouped_gated_linear(wide(x), wide(gates_ups), visits.starts)),
        outputs % 16 == 0 ? 4e-3 : 8e-3)  // gates and ups are rounded where kernels do not reach
        << outputs;
  }
  const Tensor fast = to_gpu(grad), exact = wide(grad);
  gpu.add_grouped_weight_grad_(fast, to_gpu(dy), to_gpu(x), there.starts);
  twin().add_grouped_weight_grad_(exact, wide(dy), wide(x), visits.starts);
  EXPECT_LT(relative_error(fast, exact), 1e-5);  // nothing is rounded before it is added
}

TEST(CudaExperts, GradientsAroundTheActivationEqualSingleOperations) {
  SLIME_NEEDS_GPU();
  at::manual_seed(4);
  constexpr int64_t kRows = 37, kWidth = 328;
  const Tensor dgated = numbers({kRows, kWidth}, at::kBFloat16),
               gate_up = numbers({kRows, 2 * kWidth}, at::kBFloat16),
               weight = numbers({kRows}, at::kFloat);
  const auto out = expert_kernels_for(to_gpu(dgated))
                       ->gated_gradients(to_gpu(dgated), to_gpu(gate_up), to_gpu(weight));
  ASSERT_TRUE(out.has_value());
  const Tensor gated = twin().swiglu(wide(gate_up)), column = wide(weight).unsqueeze(1);
  EXPECT_LT(relative_error(out->weighted_SF, gated * column), 6e-3);
  EXPECT_LT(relative_error(out->dweight_S, (wide(dgated) * gated).sum(1)), 4e-3);
  EXPECT_LT(relative_error(out->dgate_up_S2F,
                           twin().swiglu_backward(wide(dgated) * column, wide(gate_up))),
            6e-3);
  EXPECT_FALSE(expert_kernels_for(to_gpu(dgated))
                   ->gated_gradients(to_gpu(dgated.to(at::kFloat)), to_gpu(gate_up), to_gpu(weight))
                   .has_value());
}

}  // namespace
}  // namespace slime::kernels
