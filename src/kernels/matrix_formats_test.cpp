// Formats of matrices against numbers written out, and products of formatted matrices against those of
// the same numbers.

#include "kernels/matrix_formats.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "kernels/device.h"

namespace slime::kernels {
namespace {

using ::testing::HasSubstr;

/// Random numbers as one part in this format.
Matrix stored(const FormatRow& format, int64_t outputs, int64_t inputs) {
  Matrix matrix;
  matrix.format = format.format;
  matrix.values = at::empty({outputs, inputs}, format.code);
  matrix.scales =
      at::empty({scale_rows(format, outputs), scale_columns(format, inputs)}, at::kFloat);
  matrix.scale_row_O = at::arange(outputs, at::kLong).div(format.block_rows, "floor");
  quantise_(format, at::randn({outputs, inputs}), matrix.values, matrix.scales);
  return matrix;
}

Tensor one_row(std::initializer_list<float> numbers) {
  return at::tensor(at::ArrayRef<float>(numbers)).view({1, -1});
}

class MatrixFormats : public ::testing::TestWithParam<FormatRow> {};

TEST_P(MatrixFormats, ALargestNumberOf448HasAFactorOfOne) {
  const FormatRow& format = GetParam();
  const Tensor codes = at::empty({1, 4}, format.code), scales = at::empty({1, 1}, at::kFloat);
  // 17 lies between 16 and 18, as near to both; the code of 16 is even.
  quantise_(format, one_row({-448, 1, 17, 0}), codes, scales);
  EXPECT_EQ(scales.item<float>(), 1);
  EXPECT_TRUE(codes.to(at::kFloat).equal(one_row({-448, 1, 16, 0})));
}

TEST_P(MatrixFormats, ZerosHaveAFactorAllTheSame) {
  const FormatRow& format = GetParam();
  const Tensor codes = at::empty({1, 2}, format.code), scales = at::empty({1, 1}, at::kFloat);
  quantise_(format, one_row({0, 0}), codes, scales);
  EXPECT_EQ(scales.item<float>(), 1e-4F / 448);
  EXPECT_TRUE(codes.to(at::kFloat).equal(one_row({0, 0})));
}

TEST_P(MatrixFormats, NumbersAreCodesTimesTheFactorsOfTheirBlocks) {
  at::manual_seed(1);
  const FormatRow& format = GetParam();
  const Matrix matrix = stored(format, 200, 300);
  const Tensor numbers = numbers_of(matrix, at::kFloat), codes = matrix.values.to(at::kFloat);
  const int64_t columns = format.block_columns == 0 ? 300 : format.block_columns;
  for (const int64_t o : {0, 127, 128, 199}) {
    for (const int64_t i : {0, 127, 128, 255, 256, 299}) {
      const float factor = matrix.scales[o / format.block_rows][i / columns].item<float>();
      EXPECT_EQ(numbers[o][i].item<float>(), codes[o][i].item<float>() * factor) << o << ", " << i;
    }
  }
}

TEST_P(MatrixFormats, ProductsAreThoseOfTheNumbers) {
  at::manual_seed(2);
  const Matrix matrix = stored(GetParam(), 200, 300);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Tensor x = at::randn({5, 300}).to(type), dy = at::randn({5, 200}).to(type),
                 bias = at::randn({200}).to(type);
    const Matrix plain = numbers_of(matrix, type);
    const Device& device = kernels_for(x);
    EXPECT_TRUE(device.linear(x, matrix, bias).equal(device.linear(x, plain, bias)));
    EXPECT_TRUE(device.logits(x, matrix).equal(device.logits(x, plain)));
    EXPECT_TRUE(device.gated_linear(x, matrix, bias).equal(device.gated_linear(x, plain, bias)));
    EXPECT_TRUE(device.linear_input_grad(dy, matrix).equal(device.linear_input_grad(dy, plain)));
  }
}

TEST_P(MatrixFormats, RowsAndExpertsAreThoseOfTheNumbers) {
  at::manual_seed(3);
  const FormatRow& format = GetParam();
  const Matrix matrix = stored(format, 300, 40);
  const Tensor numbers = numbers_of(matrix, at::kFloat);
  EXPECT_TRUE(numbers_of(matrix.rows(100, 90), at::kFloat).equal(numbers.narrow(0, 100, 90)));

  // Two experts of 256 outputs: their blocks follow one another.
  const Matrix stack = stored(format, 512, 40).stacked(2);
  EXPECT_EQ(stack.outputs(), 256);
  const Tensor all = numbers_of(stack, at::kFloat), x = at::randn({7, 40});
  EXPECT_TRUE(numbers_of(stack.of_expert(1), at::kFloat).equal(all[1]));
  const GroupStarts starts(std::vector<int64_t>{0, 3, 7});
  const Device& device = kernels_for(x);
  EXPECT_TRUE(device.grouped_linear(x, stack, starts).equal(device.grouped_linear(x, all, starts)));
}

TEST_P(MatrixFormats, AreNotTakenForPlain) {
  Matrix matrix = stored(GetParam(), 4, 4);
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  matrix.name = &name;
  EXPECT_FALSE(matrix.is_plain());
  try {
    matrix.plain();
    FAIL() << "its codes were taken for its numbers";
  } catch (const BugError& error) {
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MatrixFormats,
                         ::testing::ValuesIn(matrix_formats().begin(), matrix_formats().end()),
                         [](const auto& info) {
                           std::string word(info.param.word);
                           std::replace(word.begin(), word.end(), '-', '_');
                           return word;
                         });

TEST(MatrixFormats, OfAPlainMatrixTheNumbersAreTheTensor) {
  const Tensor x = at::randn({3, 2});
  EXPECT_TRUE(numbers_of(x, at::kFloat).is_same(x));
}

TEST(MatrixFormats, AdaptersThatNoKernelAddsAreRefused) {
  Matrix matrix = at::randn({3, 2});
  int place = 0;  // there are none to point at
  matrix.adapters = reinterpret_cast<const MatrixAdapters*>(&place);
  const Tensor x = at::randn({1, 2});
  EXPECT_THROW(kernels_for(x).linear(x, matrix, {}), BugError);
}

}  // namespace
}  // namespace slime::kernels
