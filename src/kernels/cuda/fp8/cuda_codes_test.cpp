/// Products of matrices in codes on the GPU against those of the numbers that the codes mean. `Large` shapes
/// are not run under compute-sanitizer (./dev sanitize gpu).

#include <ATen/ATen.h>

#include <initializer_list>

#include "kernels/block_chain.h"
#include "kernels/cuda/fp8/codes_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/device.h"
#include "kernels/matrix_formats.h"

namespace slime::kernels {
namespace {

void expect_code_products(std::initializer_list<int64_t> parts, int64_t inputs,
                          std::initializer_list<int64_t> row_counts) {
  at::manual_seed(3);
  const Device& gpu = open_gpu().device();
  const Matrix matrix = stored_codes(parts, inputs), there = codes_on_gpu(matrix);
  const Tensor numbers_OI = numbers_of(matrix, at::kDouble),
               bias = numbers({matrix.outputs()}, at::kBFloat16);
  for (const int64_t rows : row_counts) {
    const Tensor x = numbers({rows, inputs}, at::kBFloat16);
    const Tensor exact = as_codes_mean(x).to(at::kDouble).mm(numbers_OI.t());
    EXPECT_LT(relative_error(gpu.linear(to_gpu(x), there, {}), exact), 4e-3) << rows;
    EXPECT_LT(relative_error(gpu.linear(to_gpu(x), there, to_gpu(bias)), exact + wide(bias)), 4e-3)
        << rows;
    const Tensor logits = gpu.logits(to_gpu(x), there);
    EXPECT_EQ(logits.scalar_type(), at::kFloat);
    // The tensor cores keep 13 bits of a sum of 128 products.
    EXPECT_LT(relative_error(logits, exact), 3e-4) << rows;
  }
}

TEST(CudaCodes, AreThoseOfTheCpu) {
  SLIME_NEEDS_GPU();
  const Device& gpu = open_gpu().device();
  if (!gpu.has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP() << "it multiplies no codes";
  at::manual_seed(4);
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    const Tensor plain = numbers({300, 456}, type);
    plain.narrow(0, 0, 128).narrow(1, 0, 128).zero_();
    const Tensor codes = at::empty({300, 456}, fp8_blocks().code),
                 scales = at::empty({3, 4}, at::kFloat);
    quantise_(fp8_blocks(), plain, codes, scales);
    const Tensor there = to_gpu(at::empty_like(codes)), factors = to_gpu(at::empty_like(scales));
    ASSERT_TRUE(gpu.make_codes(MatrixFormat::kFp8Blocks, to_gpu(plain), there, factors));
    EXPECT_TRUE(factors.to(at::kCPU).equal(scales));
    EXPECT_TRUE(there.to(at::kCPU).view(at::kByte).equal(codes.view(at::kByte)));
  }
}

TEST(CudaCodes, ProductsAreThoseOfTheNumbers) {
  SLIME_NEEDS_GPU();
  if (!open_gpu().device().has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP();
  expect_code_products({160}, 320, {1, 3, 8, 9, 64, 65, 130});
  expect_code_products({64, 128, 8}, 256, {1, 2, 33, 200});
}

TEST(CudaCodesLarge, ProductsAreThoseOfTheNumbers) {
  SLIME_NEEDS_GPU();
  if (!open_gpu().device().has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP();
  expect_code_products({4096, 1024, 1024}, 2560, {1, 2, 16, 32, 64, 256, 1000});
  expect_code_products({2560}, 9728, {1, 17, 64, 129});
}

BlockChain random_chain_of_codes(int64_t rows, bool has_bias) {
  const auto bias = [&](int64_t outputs) {
    return has_bias ? numbers({outputs}, at::kBFloat16) : Tensor();
  };
  constexpr int64_t kAttended = 512, kHidden = 384, kWidth = 640, kHeads = 768;
  BlockChain chain;
  chain.attended_TC = numbers({rows, kAttended}, at::kBFloat16);
  chain.residual_TH = numbers({rows, kHidden}, at::kBFloat16);
  chain.output_HC = stored_codes({kHidden}, kAttended);
  chain.output_bias_H = bias(kHidden);
  chain.post_norm_H = numbers({kHidden}, at::kBFloat16);
  chain.gate_up_2FH = stored_codes({kWidth, kWidth}, kHidden);
  chain.gate_up_bias_2F = bias(2 * kWidth);
  chain.down_HF = stored_codes({kHidden}, kWidth);
  chain.down_bias_H = bias(kHidden);
  chain.next_norm_H = numbers({kHidden}, at::kBFloat16);
  chain.next_qkv_EH = stored_codes({512, 128, 128}, kHidden);
  chain.next_qkv_bias_E = bias(kHeads);
  chain.eps = 1e-5;
  return chain;
}

BlockChain chain_on_gpu(BlockChain chain) {
  for (Matrix* matrix : {&chain.output_HC, &chain.gate_up_2FH, &chain.down_HF, &chain.next_qkv_EH})
    if (matrix->defined()) *matrix = codes_on_gpu(*matrix);
  for (Tensor* tensor :
       {&chain.attended_TC, &chain.residual_TH, &chain.output_bias_H, &chain.post_norm_H,
        &chain.gate_up_bias_2F, &chain.down_bias_H, &chain.next_norm_H, &chain.next_qkv_bias_E})
    *tensor = to_gpu(tensor->defined() ? tensor->clone() : *tensor);
  return chain;
}

/// Codes turn small differences of sums into whole steps: where the unfused chain rounds to bfloat16
/// before it makes codes, about one number of 32 gets the code beside it, a step of 6 to 12 percent. That is
/// 1.6 percent of the rows' norm for each of the chain's makings of codes: two before the residual, three before y.
TEST(CudaCodes, ChainsAreThoseOfSingleOperations) {
  SLIME_NEEDS_GPU();
  if (!open_gpu().device().has_format(MatrixFormat::kFp8Blocks)) GTEST_SKIP();
  for (const int64_t rows : {1, 2, 3, 8, 40, 64, 65, 300}) {
    for (const bool has_bias : {false, true}) {
      for (const bool is_last : {false, true}) {
        at::manual_seed(9);
        BlockChain chain = random_chain_of_codes(rows, has_bias);
        if (is_last) {
          chain.next_norm_H = chain.next_qkv_bias_E = Tensor();
          chain.next_qkv_EH = {};
        }
        const BlockChain fused = chain_on_gpu(chain), single = chain_on_gpu(chain);
        const BlockChains* chains = block_chains_for(fused.residual_TH);
        ASSERT_TRUE(chains != nullptr && chains->has_block_chain(fused));
        const Tensor y = chains->block_chain(fused), exact = unfused_block_chain(single);
        EXPECT_LT(relative_error(y, exact), 4e-2) << rows << " rows";
        EXPECT_LT(relative_error(fused.residual_TH, single.residual_TH), 3e-2) << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace slime::kernels
