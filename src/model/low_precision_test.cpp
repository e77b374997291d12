#include "model/low_precision.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace slime::model {
namespace {

TEST(LowPrecision, Fp8BlocksHaveAFactorEachTheLastOnesSmaller) {
  const Tensor weight = at::ones({3, 5}).to(at::kFloat8_e4m3fn);
  const Tensor scale = at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}).view({2, 3});
  const Tensor expected = at::tensor({1.0F, 1.0F, 2.0F, 2.0F, 3.0F,  //
                                      1.0F, 1.0F, 2.0F, 2.0F, 3.0F,  //
                                      4.0F, 4.0F, 5.0F, 5.0F, 6.0F})
                              .view({3, 5});
  EXPECT_TRUE(from_fp8_blocks(weight, scale, 2).equal(expected));
  EXPECT_THROW(from_fp8_blocks(weight, scale, 1), ConfigError);
}

TEST(LowPrecision, Mxfp4HasTwoNumbersAByteAndAPowerOfTwoAGroup) {
  Tensor blocks = at::zeros({1, 2, 16}, at::kByte);
  blocks[0][0][0] = 0x72;   // 1 (code 2), then 6 (code 7)
  blocks[0][1][15] = 0xF9;  // -0.5 (code 9), then -6 (code 15)
  const Tensor scales = at::tensor({127, 129}, at::kByte).view({1, 2});
  const Tensor out = from_mxfp4(blocks, scales);
  ASSERT_EQ(out.sizes(), at::IntArrayRef({1, 64}));
  EXPECT_EQ(out[0][0].item<float>(), 1);
  EXPECT_EQ(out[0][1].item<float>(), 6);
  EXPECT_EQ(out[0][62].item<float>(), -2);
  EXPECT_EQ(out[0][63].item<float>(), -24);
  EXPECT_EQ(out.count_nonzero().item<int64_t>(), 4);
  EXPECT_THROW(from_mxfp4(blocks, scales.view({2, 1})), ConfigError);
}

TEST(LowPrecision, Int4GroupsBeginInTheLowestBits) {
  // 8 is zero; the highest number makes the word negative.
  const Tensor packed = at::tensor({static_cast<int32_t>(0xF8888890), 0x08888888}, at::kInt);
  const Tensor scale = at::tensor({0.5F, 2.0F});
  const Tensor out = from_int4_groups(packed.view({1, 2}), scale.view({1, 2}));
  ASSERT_EQ(out.sizes(), at::IntArrayRef({1, 16}));
  EXPECT_EQ(out[0][0].item<float>(), -4);    // code 0
  EXPECT_EQ(out[0][1].item<float>(), 0.5F);  // code 9
  EXPECT_EQ(out[0][7].item<float>(), 3.5F);  // code 15
  EXPECT_EQ(out[0][15].item<float>(), -16);
  EXPECT_EQ(out.count_nonzero().item<int64_t>(), 4);
}

TEST(LowPrecision, AWeightIsSeveralTensors) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(stored_names(StoredForm::kFp8Blocks, "a.weight"),
            (Names{"a.weight", "a.weight_scale_inv"}));
  EXPECT_EQ(stored_names(StoredForm::kMxfp4, "a.down_proj"),
            (Names{"a.down_proj_blocks", "a.down_proj_scales"}));
  EXPECT_EQ(stored_names(StoredForm::kInt4Groups, "a.weight"),
            (Names{"a.weight_packed", "a.weight_scale"}));
}

TEST(LowPrecision, HeadersAreCheckedAndTheTensorIsNamed) {
  using Shape = std::vector<int64_t>;
  const auto problem = [](StoredForm form, StoredHeader numbers, StoredHeader factors,
                          const Shape& full) {
    return low_precision_problem(form, 2, {std::move(numbers), std::move(factors)}, full);
  };
  const StoredHeader fp8{"a.weight", at::kFloat8_e4m3fn, {3, 5}};
  const StoredHeader inverse{"a.weight_scale_inv", at::kFloat, {2, 3}};
  EXPECT_EQ(problem(StoredForm::kFp8Blocks, fp8, inverse, {3, 5}), "");
  EXPECT_EQ(problem(StoredForm::kFp8Blocks, {"a.weight", at::kByte, {3, 5}}, inverse, {3, 5}),
            "tensor a.weight is Byte [3, 5], should be float8 [3, 5]");
  EXPECT_EQ(
      problem(StoredForm::kFp8Blocks, fp8, {"a.weight_scale_inv", at::kFloat, {3, 2}}, {3, 5}),
      "tensor a.weight_scale_inv is Float [3, 2], should be float32, bfloat16 or float16 [2, "
      "3]: one for each block of 2 x 2 numbers");
  EXPECT_NE(problem(StoredForm::kFp8Blocks, fp8, {"a.weight_scale_inv", at::kInt, {2, 3}}, {3, 5}),
            "");
  const StoredHeader blocks{"e_blocks", at::kByte, {2, 6, 1, 16}};
  EXPECT_EQ(problem(StoredForm::kMxfp4, blocks, {"e_scales", at::kByte, {2, 6, 1}}, {2, 32, 6}),
            "");
  EXPECT_NE(problem(StoredForm::kMxfp4, blocks, {"e_scales", at::kFloat, {2, 6, 1}}, {2, 32, 6}),
            "");
  EXPECT_NE(problem(StoredForm::kMxfp4, blocks, {"e_scales", at::kByte, {2, 6, 1}}, {2, 64, 6}),
            "");
  const StoredHeader packed{"a.weight_packed", at::kInt, {4, 2}};
  EXPECT_EQ(
      problem(StoredForm::kInt4Groups, packed, {"a.weight_scale", at::kHalf, {4, 2}}, {4, 16}), "");
  EXPECT_NE(
      problem(StoredForm::kInt4Groups, packed, {"a.weight_scale", at::kHalf, {4, 3}}, {4, 16}), "");
  EXPECT_NE(
      problem(StoredForm::kInt4Groups, packed, {"a.weight_scale", at::kHalf, {4, 2}}, {4, 24}), "");
}

TEST(LowPrecision, AFactorThatIsNoNumberIsRefusedByName) {
  const auto refusal = [](const Tensor& factors) {
    try {
      check_factors("a.safetensors", "a.weight_scale", factors);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal(at::tensor({1.0F, 2.0F})), "none");
  EXPECT_EQ(refusal(at::tensor({1.0F, NAN})),
            "a.safetensors: tensor a.weight_scale has a factor that is not a finite number");
  EXPECT_NE(refusal(at::tensor({1.0F, INFINITY})), "none");
  EXPECT_EQ(refusal(at::tensor({1.0F, -2.0F})),
            "a.safetensors: tensor a.weight_scale has a negative factor: the file is damaged");
  EXPECT_EQ(refusal(at::tensor({0.0F, 2.0F})), "none") << "of a block of zeros";
  EXPECT_EQ(refusal(at::tensor({0, 254}, at::kByte)), "none");
  EXPECT_NE(refusal(at::tensor({0, 255}, at::kByte)), "none");
}

}  // namespace
}  // namespace slime::model
