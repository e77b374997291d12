/// Experts of the GPU whose weights are codes, against plain loops on the CPU with the numbers that the codes mean. `Large`
/// shapes are not run under compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/block_chain.h"
#include "kernels/cuda/experts/experts_for_tests.h"
#include "kernels/cuda/fp8/codes_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/expert_visits.h"
#include "kernels/routed_experts.h"

namespace slime::kernels {
namespace {

RoutedExperts random_coded_experts(const ExpertShape& shape) {
  RoutedExperts out = random_experts(shape);
  out.gate_up = stored_experts(shape.experts, {shape.width, shape.width}, shape.hidden);
  out.down = stored_experts(shape.experts, {shape.hidden}, shape.width);
  // Factors that are far apart: of another block, or another expert, they would be found out.
  for (Matrix* matrix : {&out.gate_up, &out.down})
    matrix->scales.mul_(at::rand(matrix->scales.sizes()).mul_(4).add_(0.25));
  return out;
}

/// Sizes that end within a block, a tile and a stage; parts of several blocks; all rows at the same experts.
const ExpertShape kCodedShapes[] = {
    {"Small", 64, 32, 8, {3, false, true, 1}, false, 0},
    {"Ragged", 288, 80, 13, {2, false, false, 1}, false, 0},
    {"Biased", 160, 144, 40, {10, true, true, 2.5}, true, 0.2},
    {"SameForAll", 128, 64, 32, {4, true, false, 1}, true, 50},
    {"Many", 320, 32, 300, {8, false, true, 1}, false, 0},
    {"Blocks", 512, 400, 6, {2, false, true, 1}, false, 0},
};

/// Of more than 256 rows nobody counts the visits.
void expect_numbers_of_loops(const ExpertShape& shape, std::initializer_list<int64_t> row_counts) {
  at::manual_seed(11);
  expect_equal_to_loops(shape, random_coded_experts(shape), row_counts, /*most_counted=*/256);
}

class CudaExpertCodes : public ::testing::TestWithParam<ExpertShape> {};

/// Rows beyond 256 come in pieces.
TEST_P(CudaExpertCodes, EqualLoopsOverTheVisits) {
  SLIME_NEEDS_GPU();
  expect_numbers_of_loops(GetParam(), {1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 130, 256, 257, 600});
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaExpertCodes, ::testing::ValuesIn(kCodedShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaExpertCodesLarge, EqualLoopsOverTheVisits) {
  SLIME_NEEDS_GPU();
  expect_numbers_of_loops({"", 2048, 768, 128, {8, false, true, 1}, false, 0}, {1, 4, 32, 200});
}

/// Each code that is a number, with both signs, in each place of a row: bit by bit, also those that are subnormal.
TEST(CudaExpertCodes, AllCodesAreTheirNumbers) {
  SLIME_NEEDS_GPU();
  constexpr int64_t kSize = 256, kExperts = 2;
  RoutedExperts experts =
      random_coded_experts({"", kSize, kSize, kExperts, {1, false, true, 1}, false, 0});
  // Up u has code (u + i) in place i. Gates are 256, and so is their silu; the down matrix is the unit matrix.
  const Tensor place = at::arange(kSize, at::kLong);
  Tensor ups = (place.unsqueeze(1) + place).remainder(256);
  ups = at::where(ups.remainder(128) == 127, at::zeros_like(ups), ups).to(at::kByte);  // no number
  constexpr int64_t k256 = 0x78, kOne = 0x38;
  const Tensor units = (at::eye(kSize, at::kLong) * kOne).to(at::kByte);
  const auto of_all = [](const Tensor& one) {
    return one.unsqueeze(0).repeat({kExperts, 1, 1}).view(fp8_blocks().code);
  };
  experts.gate_up.values = of_all(at::cat({at::full_like(ups, k256), ups}));
  experts.down.values = of_all(units);
  experts.gate_up.scales.fill_(1);
  experts.down.scales.fill_(1);
  const RoutedExperts fast = experts_on_gpu(experts);
  const Tensor x_TH = at::eye(kSize).to(at::kBFloat16), there = to_gpu(x_TH);
  const ExpertKernels* kernels = expert_kernels_for(there);
  if (!kernels->has_routed_experts(there, fast)) GTEST_SKIP() << "this GPU has no such kernels";
  const Tensor exact = expected_of(x_TH, experts).y_TH;
  EXPECT_TRUE(
      at::equal(exact[3], wide(ups.view(fp8_blocks().code).to(at::kFloat)).select(1, 3) * 256));
  EXPECT_TRUE(at::equal(wide(kernels->routed_experts(there, fast).cpu()), exact));
}

/// Rows become codes before each product, which one number of many gets wrong by a step where the kernels' sums are rounded
/// otherwise (cuda_codes_test.cpp).
void expect_coded_chain(int64_t shared_width) {
  at::manual_seed(3);
  constexpr int64_t kHidden = 384, kAttended = 256, kMostRows = 300;
  RoutedExperts experts =
      random_coded_experts({"", kHidden, 144, 40, {4, true, true, 2.5}, true, 0.2});
  if (shared_width > 0) {
    experts.shared_gate_up = stored_codes({shared_width, shared_width}, kHidden);
    experts.shared_down = stored_codes({kHidden}, shared_width);
  }
  const RoutedExperts fast = experts_on_gpu(experts);
  const Tensor attended = numbers({kMostRows, kAttended}, at::kBFloat16),
               residual = numbers({kMostRows, kHidden}, at::kBFloat16),
               post_norm = numbers({kHidden}, at::kBFloat16),
               next_norm = numbers({kHidden}, at::kBFloat16);
  const Matrix output = stored_codes({kHidden}, kAttended),
               qkv = stored_codes({256, 64, 64}, kHidden);
  const auto product = [](const Tensor& x, const Matrix& matrix) {
    return wide(as_codes_mean(x.to(at::kBFloat16))).mm(numbers_of(matrix, at::kDouble).t());
  };
  // Rounded where the kernels round: another choice of experts would be another result.
  const Tensor sum_TH = wide((wide(residual) + product(attended, output)).to(at::kBFloat16)),
               input_TH = twin().rms_norm(sum_TH, wide(post_norm), 1e-5).to(at::kBFloat16),
               update_TH = expected_of(input_TH, experts).y_TH, next_sum_TH = sum_TH + update_TH,
               heads_TE = product(twin().rms_norm(next_sum_TH, wide(next_norm), 1e-5), qkv);
  for (const bool is_last : {false, true}) {
    for (const int64_t rows : {1, 2, 3, 16, 64, 65, 129, 300}) {
      BlockChain chain;
      chain.attended_TC = to_gpu(attended).narrow(0, 0, rows);
      chain.residual_TH = to_gpu(residual).narrow(0, 0, rows).clone();
      chain.output_HC = codes_on_gpu(output);
      chain.post_norm_H = to_gpu(post_norm);
      chain.experts = &fast;
      chain.eps = 1e-5;
      if (!is_last) {
        chain.next_norm_H = to_gpu(next_norm);
        chain.next_qkv_EH = codes_on_gpu(qkv);
      }
      const BlockChains* chains = block_chains_for(chain.residual_TH);
      if (!open_gpu().device().has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP();
      ASSERT_TRUE(chains != nullptr && chains->has_block_chain(chain)) << rows << " rows";
      const Tensor result = chains->block_chain(chain);
      EXPECT_LT(error_of_most_rows(result, (is_last ? update_TH : heads_TE).narrow(0, 0, rows)),
                0.08)
          << rows << " rows";
      EXPECT_LT(error_of_most_rows(chain.residual_TH,
                                   (is_last ? sum_TH : next_sum_TH).narrow(0, 0, rows)),
                0.05)
          << rows << " rows";
    }
  }
}

TEST(CudaExpertCodes, ChainFromAttentionToAttention) {
  SLIME_NEEDS_GPU();
  expect_coded_chain(0);
}

/// The shared expert's rows become codes twice, which the loops do not know: two and a half percent of a number each.
TEST(CudaExpertCodes, ChainWithASharedExpert) {
  SLIME_NEEDS_GPU();
  expect_coded_chain(128);
}

/// Rows in the order of experts, with these many each, in several tiles and none; rows are multiplied as the numbers that their
/// codes mean.
void expect_grouped_products(std::initializer_list<int64_t> counts, int64_t part, int64_t inputs) {
  at::manual_seed(9);
  const Device& gpu = open_gpu().device();
  const auto experts = static_cast<int64_t>(counts.size());
  const Matrix codes = stored_experts(experts, {part, part}, inputs), there = codes_on_gpu(codes);
  const Tensor numbers_EOI = numbers_of(codes, at::kDouble);
  std::vector<int64_t> starts{0};
  for (const int64_t count : counts) starts.push_back(starts.back() + count);
  const Tensor x = numbers({starts.back(), inputs}, at::kBFloat16), meant = wide(as_codes_mean(x));
  std::vector<Tensor> rows;
  for (int64_t e = 0; e < experts; ++e) {
    const auto at = static_cast<size_t>(e);
    rows.push_back(meant.narrow(0, starts[at], starts[at + 1] - starts[at]).mm(numbers_EOI[e].t()));
  }
  const Tensor exact = at::cat(rows);
  const GroupStarts on_device(to_gpu(starts, at::kInt));
  EXPECT_LT(relative_error(gpu.grouped_linear(to_gpu(x), there, on_device), exact), 4e-3);
  const Tensor gated = at::silu(exact.narrow(1, 0, part)) * exact.narrow(1, part, part);
  // Gates and ups are rounded where they are stored.
  EXPECT_LT(relative_error(gpu.grouped_gated_linear(to_gpu(x), there, on_device), gated), 8e-3);
}

TEST(CudaExpertCodes, GroupedProductsOfTilesOf128Rows) {
  SLIME_NEEDS_GPU();
  if (!open_gpu().device().has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP();
  expect_grouped_products({37, 0, 130, 1, 0, 255, 2}, 200, 272);  // parts end within blocks
  expect_grouped_products({129, 3, 300}, 256, 256);
  expect_grouped_products({5, 6}, 8, 16);
}

TEST(CudaExpertCodes, GroupedProductsOfTilesOf256Rows) {
  SLIME_NEEDS_GPU();
  if (!open_gpu().device().has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP();
  expect_grouped_products({1001, 0, 255}, 200, 272);
  expect_grouped_products({770, 515}, 256, 640);
}

/// Where rows are not bfloat16, numbers are made of codes, as the CPU makes them, and multiplied as plain ones are.
TEST(CudaExpertCodes, GroupedProductsOfOtherRowsAreThoseOfTheNumbers) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  if (!gpu.has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP() << "it multiplies no codes";
  at::manual_seed(9);
  constexpr int64_t kExperts = 6, kInputs = 136, kWidth = 200;  // columns of no whole copies
  const Matrix codes = stored_experts(kExperts, {kWidth, kWidth}, kInputs),
               there = codes_on_gpu(codes);
  const Tensor expert_TK = at::randint(0, kExperts - 1, {70, 3}, at::kLong);  // one has no visits
  const ExpertVisits visits = group_by_expert(to_gpu(expert_TK), kExperts);
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const Tensor x = to_gpu(numbers({visits.num_visits(), kInputs}, type)),
                 plain = to_gpu(numbers_of(codes, type));
    EXPECT_TRUE(at::equal(gpu.grouped_linear(x, there, visits.starts),
                          gpu.grouped_linear(x, plain, visits.starts)));
    EXPECT_TRUE(at::equal(gpu.grouped_gated_linear(x, there, visits.starts),
                          gpu.grouped_gated_linear(x, plain, visits.starts)));
  }
}

}  // namespace
}  // namespace slime::kernels
