/// The fused products between two attentions against single operations on the CPU. `Large` shapes
/// are not run under compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "kernels/block_chain.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/device.h"

namespace slime::kernels {
namespace {

struct ChainShape {
  const char* name = "";
  int64_t attended = 0, hidden = 0, width = 0, heads = 0;
};

/// On 132 multiprocessors: so few outputs that some have none; thread blocks of 36 pairs and of 24
/// outputs, the last ones with fewer; an occupancy of two with 104 outputs each. And with more than
/// 64 rows two K splits.
constexpr ChainShape kFewOutputs{"FewOutputs", 64, 64, 128, 192};
constexpr ChainShape kUnevenBlocks{"UnevenBlocks", 64, 128, 4288, 2200};
constexpr ChainShape kManyBlocks{"ManyBlocks", 128, 64, 2112, 26000};
constexpr ChainShape kTwoParts{"TwoParts", 64, 4096, 2048, 64};

BlockChain random_chain(const ChainShape& shape, int64_t rows, bool has_bias = true) {
  const auto numbers = [](at::IntArrayRef sizes, double scale) {
    return (at::randn(sizes, at::TensorOptions(at::kFloat)) * scale).to(at::kBFloat16);
  };
  const auto matrix = [&](int64_t outputs, int64_t inputs) {
    return numbers({outputs, inputs}, 1 / std::sqrt(static_cast<double>(inputs)));
  };
  const auto bias = [&](int64_t outputs) { return has_bias ? numbers({outputs}, 0.5) : Tensor(); };
  BlockChain chain;
  chain.attended_TC = numbers({rows, shape.attended}, 1);
  chain.residual_TH = numbers({rows, shape.hidden}, 2);
  chain.output_HC = matrix(shape.hidden, shape.attended);
  chain.output_bias_H = bias(shape.hidden);
  chain.post_norm_H = numbers({shape.hidden}, 1);
  chain.gate_up_2FH = matrix(2 * shape.width, shape.hidden);
  chain.gate_up_bias_2F = bias(2 * shape.width);
  chain.down_HF = matrix(shape.hidden, shape.width);
  chain.down_bias_H = bias(shape.hidden);
  chain.eps = 1e-5;
  chain.next_norm_H = numbers({shape.hidden}, 1);
  chain.next_qkv_EH = matrix(shape.heads, shape.hidden);
  chain.next_qkv_bias_E = bias(shape.heads);
  return chain;
}

BlockChain to(const BlockChain& from, at::Device device, at::ScalarType type) {
  BlockChain out = from;
  for (Tensor* tensor :
       {&out.attended_TC, &out.residual_TH, &out.output_HC.values, &out.output_bias_H,
        &out.post_norm_H, &out.gate_up_2FH.values, &out.gate_up_bias_2F, &out.down_HF.values,
        &out.down_bias_H, &out.next_norm_H, &out.next_qkv_EH.values, &out.next_qkv_bias_E})
    if (tensor->defined()) *tensor = tensor->to(device, type, /*non_blocking=*/false, true);
  return out;
}

/// Its first rows, with a residual stream of its own.
BlockChain part_of(const BlockChain& chain, int64_t rows, bool has_bias, bool is_last) {
  BlockChain first = chain;
  first.attended_TC = chain.attended_TC.narrow(0, 0, rows);
  first.residual_TH = chain.residual_TH.narrow(0, 0, rows).clone();
  if (!has_bias) {
    first.output_bias_H = first.gate_up_bias_2F = first.down_bias_H = first.next_qkv_bias_E =
        Tensor();
  }
  if (is_last) {
    first.next_norm_H = first.next_qkv_bias_E = Tensor();
    first.next_qkv_EH = {};
  }
  return first;
}

/// Ranks of which the others have nothing to add.
class LonelyRanks final : public RankCollectives {
 public:
  explicit LonelyRanks(bool has_add_norm) : has_add_norm_(has_add_norm) {}

  int num_sums() const { return num_sums_; }
  void sum_(const Tensor&) const override { ++num_sums_; }
  bool has_add_norm(const Tensor&) const override { return has_add_norm_; }
  Tensor add_norm_(const Tensor& residual_TH, const Tensor& partial, const Tensor& bias_H,
                   const Tensor& weight_H, double eps) const override {
    ++num_sums_;
    Tensor part_TH = partial;
    if (partial.scalar_type() == at::kFloat)
      part_TH = partial.view({-1, residual_TH.size(0), residual_TH.size(1)}).sum(0);
    if (bias_H.defined()) part_TH = part_TH + bias_H;
    return kernels_for(residual_TH)
        .add_rms_norm_(residual_TH, part_TH.to(at::kBFloat16), weight_H, eps);
  }
  bool has_gather_columns(const Tensor&) const override { return false; }
  Tensor gather_columns(const Tensor&, int64_t) const override { return {}; }

 private:
  bool has_add_norm_;
  mutable int num_sums_ = 0;
};

/// The chain by single operations in float64, whose results are rounded where training stores them.
Tensor rounded_block_chain(const BlockChain& chain) {
  const auto rounded = [](const Tensor& x) { return x.to(at::kBFloat16).to(at::kDouble); };
  const Device& device = kernels_for(chain.residual_TH);
  Tensor residual_TH = chain.residual_TH;
  const auto added_norm = [&](const Tensor& update_TH, const Tensor& norm_H) {
    residual_TH.copy_(rounded(residual_TH + rounded(update_TH)));
    return rounded(device.rms_norm(residual_TH, norm_H, chain.eps));
  };
  const Tensor input_TH = added_norm(
      device.linear(chain.attended_TC, chain.output_HC, chain.output_bias_H), chain.post_norm_H);
  const Tensor gated_TF = rounded(
      device.swiglu(rounded(device.linear(input_TH, chain.gate_up_2FH, chain.gate_up_bias_2F))));
  const Tensor update_TH = device.linear(gated_TF, chain.down_HF, chain.down_bias_H);
  if (!chain.next_norm_H.defined()) return rounded(update_TH);
  return device.linear(added_norm(update_TH, chain.next_norm_H), chain.next_qkv_EH,
                       chain.next_qkv_bias_E);
}

void expect_equal_to_unfused(const ChainShape& shape, std::initializer_list<int64_t> row_counts,
                             bool is_last, const RankCollectives* ranks = nullptr) {
  at::manual_seed(7);
  const BlockChain chain = random_chain(shape, std::max(row_counts));
  const BlockChain exact_chain = to(chain, at::kCPU, at::kDouble),
                   fast_chain = to(chain, at::kCUDA, at::kBFloat16);
  for (const bool has_bias : {false, true}) {
    const BlockChain exact = part_of(exact_chain, std::max(row_counts), has_bias, is_last);
    const Tensor all_expected = rounded_block_chain(exact);
    for (const int64_t rows : row_counts) {
      BlockChain fast = part_of(fast_chain, rows, has_bias, is_last);
      fast.ranks = ranks;
      const Tensor expected = all_expected.narrow(0, 0, rows),
                   expected_residual = exact.residual_TH.narrow(0, 0, rows);
      const BlockChains* chains = block_chains_for(fast.residual_TH);
      ASSERT_NE(chains, nullptr);
      if (!chains->has_block_chain(fast)) GTEST_SKIP() << "this GPU has no chain";
      const Tensor result = chains->block_chain(fast);
      // Activations are rounded to 8 bits four times on the way.
      EXPECT_LT(relative_error(result, expected), 0.012) << rows << " rows";
      EXPECT_LT(relative_error(fast.residual_TH, expected_residual), 0.006) << rows << " rows";
    }
  }
}

class CudaBlockChain : public ::testing::TestWithParam<ChainShape> {};

constexpr std::initializer_list<int64_t> kFew = {1, 2, 3, 8, 13, 16, 17, 32, 45, 64},
                                         kMany = {65, 96, 127, 128, 129, 200, 256};

TEST_P(CudaBlockChain, EqualsItsPartsUpToRounding) {
  SLIME_NEEDS_GPU();
  expect_equal_to_unfused(GetParam(), kFew, false);
}

/// Some products may be a library's here. compute-sanitizer leaves those out by the word
/// `Products`.
TEST_P(CudaBlockChain, OfTheLastBlockEqualsItsProductsUpToRounding) {
  SLIME_NEEDS_GPU();
  expect_equal_to_unfused(GetParam(), kFew, true);
}

TEST_P(CudaBlockChain, OfManyRowsEqualsItsProductsUpToRounding) {
  SLIME_NEEDS_GPU();
  expect_equal_to_unfused(GetParam(), kMany, false);
  expect_equal_to_unfused(GetParam(), kMany, true);
}

/// Among tensor-parallel ranks each output and down product is summed once.
TEST_P(CudaBlockChain, AmongRanksEqualsItsProductsUpToRounding) {
  SLIME_NEEDS_GPU();
  for (const bool has_add_norm : {true, false}) {
    const LonelyRanks ranks(has_add_norm);
    expect_equal_to_unfused(GetParam(), {1, 2, 3, 64, 65, 256}, false, &ranks);
    expect_equal_to_unfused(GetParam(), {1, 64, 129}, true, &ranks);
    if (!IsSkipped()) {
      EXPECT_EQ(ranks.num_sums(), 2 * 2 * (6 + 3));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaBlockChain,
                         ::testing::Values(kFewOutputs, kUnevenBlocks, kManyBlocks, kTwoParts,
                                           ChainShape{"Large05b", 512, 896, 4864, 1152},
                                           ChainShape{"Large4b", 4096, 2560, 9728, 6144}),
                         [](const auto& info) { return std::string(info.param.name); });

void expect_same_bits_each_time(const ChainShape& shape, int64_t rows) {
  const BlockChain chain = to(random_chain(shape, rows, false), at::kCUDA, at::kBFloat16);
  const BlockChains* chains = block_chains_for(chain.residual_TH);
  if (!chains->has_block_chain(chain)) GTEST_SKIP() << "this GPU has no chain";
  Tensor first, residual;
  for (int round = 0; round < 20; ++round) {
    BlockChain again = chain;
    again.residual_TH = chain.residual_TH.clone();
    const Tensor result = chains->block_chain(again);
    if (round == 0) {
      first = result;
      residual = again.residual_TH;
    }
    EXPECT_TRUE(result.equal(first));
    EXPECT_TRUE(again.residual_TH.equal(residual));
  }
}

TEST(CudaBlockChains, GiveTheSameBitsEachTime) {
  SLIME_NEEDS_GPU();
  expect_same_bits_each_time(kUnevenBlocks, 1);
  expect_same_bits_each_time(kUnevenBlocks, 5);
  expect_same_bits_each_time(kUnevenBlocks, 21);
}

TEST(CudaBlockChains, OfLargeProductsGiveTheSameBitsEachTime) {
  SLIME_NEEDS_GPU();
  expect_same_bits_each_time({"", 2048, 1024, 3072, 4096}, 1);
  expect_same_bits_each_time({"", 2048, 1024, 3072, 4096}, 2);
  expect_same_bits_each_time({"", 2048, 1024, 3072, 4096}, 5);
  expect_same_bits_each_time({"", 2048, 1024, 3072, 4096}, 40);
  expect_same_bits_each_time({"", 2048, 1024, 3072, 4096}, 100);
  expect_same_bits_each_time({"", 2048, 1024, 3072, 4096}, 250);
}

/// The product of gate and up in prompts: a row's numbers do not depend on the rows beside it.
TEST(CudaBlockChains, OfPromptsHaveTheSameGatedProductsInAnyBatch) {
  SLIME_NEEDS_GPU();
  at::manual_seed(15);
  const BlockChain chain = to(random_chain({"", 64, 1024, 3080, 64}, 64), at::kCUDA, at::kBFloat16);
  if (!block_chains_for(chain.residual_TH)->has_block_chain(chain))
    GTEST_SKIP() << "this GPU has no such product";
  const Tensor x_TH = at::randn({3000, 1024}, chain.residual_TH.options());
  const auto gated = [&](const Tensor& some_TH) {
    return kernels_for(some_TH).gated_linear(some_TH, chain.gate_up_2FH, chain.gate_up_bias_2F);
  };
  const Tensor all_TF = gated(x_TH);
  for (const auto& [first, rows] :
       {std::pair<int64_t, int64_t>{0, 769}, {100, 900}, {1, 2999}, {1300, 1024}}) {
    EXPECT_TRUE(gated(x_TH.narrow(0, first, rows).clone()).equal(all_TF.narrow(0, first, rows)))
        << rows << " rows from " << first;
  }
}

TEST(CudaBlockChains, ReachBfloat16And256Rows) {
  SLIME_NEEDS_GPU();
  const BlockChain chain = random_chain(kFewOutputs, 4, false);
  const BlockChain half = to(chain, at::kCUDA, at::kHalf);
  const BlockChains* chains = block_chains_for(half.residual_TH);
  EXPECT_FALSE(chains->has_block_chain(half));
  const BlockChain many = to(random_chain(kFewOutputs, 257, false), at::kCUDA, at::kBFloat16);
  EXPECT_FALSE(chains->has_block_chain(many));
  const BlockChain odd =
      to(random_chain({"", 64, 72, 128, 192}, 4, false), at::kCUDA, at::kBFloat16);
  EXPECT_FALSE(chains->has_block_chain(odd));
}

}  // namespace
}  // namespace slime::kernels
