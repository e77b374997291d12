// Matrices in other formats, as networks hold them.

#include "model/matrix_storage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "core/error.h"
#include "kernels/matrix_formats.h"
#include "model/network.h"
#include "model/safetensors.h"
#include "model/weight_checksums.h"
#include "model/weights_builder.h"

namespace slime::model {
namespace {

using kernels::MatrixFormat;
using kernels::MatrixParam;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kFixtures = std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures";

Precision in_blocks(at::ScalarType weights = at::kFloat) {
  return {.weights = weights, .activations = at::kFloat, .matrices = MatrixFormat::kFp8Blocks};
}

bool are_same_bytes(const Tensor& a, const Tensor& b) {
  return a.contiguous().view(at::kByte).equal(b.contiguous().view(at::kByte));
}

/// Weights with one matrix of these tensors, plain and in blocks, filled with the same numbers.
struct OneMatrix {
  explicit OneMatrix(const std::vector<Weights::Builder::Component>& components) {
    Weights::Builder plain_builder(plain), stored_builder(stored);
    plain_builder.add(plain_param, components);
    stored_builder.add(stored_param, components);
    plain_builder.allocate({});
    stored_builder.allocate(in_blocks());
    at::manual_seed(5);
    Tensor(plain.flat()).normal_();
    stored.copy_from(plain);
  }
  Tensor numbers() const { return kernels::numbers_of(stored_param.matrix, at::kFloat); }

  Weights plain, stored;
  MatrixParam plain_param, stored_param;
};

class KnownAnswers : public ::testing::TestWithParam<kernels::FormatRow> {};

/// tests/fixtures/fp8/make.py: codes from a table of all numbers, without a cast of a library.
TEST_P(KnownAnswers, AreTheCodesAndFactors) {
  const SafetensorsFile file(kFixtures / "fp8/matrices.safetensors");
  const kernels::FormatRow& format = GetParam();
  const std::string word(format.word);
  const Tensor weight_OI = file.read("weight"), expected_codes = file.read(word + ".codes"),
               expected_scales = file.read(word + ".scales");
  const Tensor codes = at::empty(weight_OI.sizes(), format.code),
               scales = at::empty(expected_scales.sizes(), at::kFloat);
  kernels::quantise_(format, weight_OI, codes, scales);
  EXPECT_TRUE(scales.equal(expected_scales));
  EXPECT_TRUE(are_same_bytes(codes, expected_codes));
}

INSTANTIATE_TEST_SUITE_P(Formats, KnownAnswers,
                         ::testing::ValuesIn(kernels::matrix_formats().begin(),
                                             kernels::matrix_formats().end()),
                         [](const auto& info) {
                           std::string word(info.param.word);
                           std::replace(word.begin(), word.end(), '-', '_');
                           return word;
                         });

TEST(MatrixStorage, TensorsOfAFusedMatrixHaveBlocksOfTheirOwn) {
  // Two blocks, one of 128 rows and one of 32, and one block of 64 rows.
  const OneMatrix fused({{"gate", {160, 32}, {}}, {"up", {64, 32}, {}}});
  EXPECT_EQ(fused.stored_param.matrix.scales.sizes(), (std::vector<int64_t>{3, 1}));
  const Tensor rows = fused.stored_param.matrix.scale_row_O;
  EXPECT_EQ(rows[127].item<int64_t>(), 0);
  EXPECT_EQ(rows[128].item<int64_t>(), 1);
  EXPECT_EQ(rows[159].item<int64_t>(), 1);
  EXPECT_EQ(rows[160].item<int64_t>(), 2);
  const OneMatrix gate({{"gate", {160, 32}, {}}});
  EXPECT_TRUE(fused.numbers().narrow(0, 0, 160).equal(gate.numbers()));
  // e4m3 has three digits: half a step is a sixteenth of a number, or of the smallest normal one.
  const Tensor exact = fused.plain_param.matrix.values;
  EXPECT_TRUE(((fused.numbers() - exact).abs() <= exact.abs() / 16 + 1e-4).all().item<bool>());
}

TEST(MatrixStorage, ExpertsInOneTensorHaveBlocksOfTheirOwn) {
  const OneMatrix stack({{"experts", {2, 130, 8}, {}}});
  const kernels::Matrix experts = stack.stored_param.matrix.stacked(2);
  EXPECT_EQ(experts.scales.sizes(), (std::vector<int64_t>{2, 2, 1}));
  const Tensor second = stack.plain_param.matrix.values.select(0, 1).abs();
  EXPECT_FLOAT_EQ(experts.scales[1][0].item<float>(),
                  second.narrow(0, 0, 128).max().item<float>() / 448);
  EXPECT_FLOAT_EQ(experts.scales[1][1].item<float>(),
                  second.narrow(0, 128, 2).max().item<float>() / 448);
}

TEST(MatrixStorage, ASliceOfWholeBlocksHasTheNumbersOfTheWhole) {
  const std::vector<int64_t> shape{300, 200};
  OneMatrix whole({{"w", shape, {}}}), part({{"w", shape, Slice{0, 256, 300}}});
  Tensor(part.plain.flat()).zero_();
  part.plain_param.matrix.values.copy_(whole.plain_param.matrix.values.narrow(0, 256, 44));
  part.stored.copy_from(part.plain);
  EXPECT_TRUE(part.numbers().equal(whole.numbers().narrow(0, 256, 44)));
}

TEST(MatrixStorage, FactorsHaveShapesAndSlicesOfTheirOwn) {
  constexpr MatrixFormat kBlocks = MatrixFormat::kFp8Blocks, kChannels = MatrixFormat::kFp8Channels;
  EXPECT_EQ(factors_shape(kBlocks, {300, 200}), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(factors_shape(kBlocks, {4, 300, 200}), (std::vector<int64_t>{4, 3, 2}));
  EXPECT_EQ(factors_shape(kChannels, {300, 200}), (std::vector<int64_t>{300, 1}));
  EXPECT_EQ(factor_slices(kBlocks, Slice{0, 128, 300}, {300, 200}), Slices(Slice{0, 1, 3}));
  EXPECT_EQ(factor_slices(kBlocks, Slice{1, 0, 128}, {300, 200}), Slices(Slice{1, 0, 1}));
  // Two experts, of each a slice of gates and one of ups.
  EXPECT_EQ(factor_slices(kBlocks, {{0, 2, 4}, {1, 0, 128}, {1, 256, 384}}, {4, 512, 200}),
            (Slices{{0, 2, 4}, {1, 0, 1}, {1, 2, 3}}));
}

TEST(MatrixStorage, SlicesThatCutBlocksAreRefusedByName) {
  Weights weights;
  Weights::Builder builder(weights);
  MatrixParam rows, columns;
  builder.add(rows, {{"q_proj", {256, 64}, Slice{0, 64, 128}}});
  builder.add(columns, {{"o_proj", {64, 192}, Slice{1, 96, 192}}});
  try {
    builder.allocate(in_blocks());
    FAIL() << "blocks were cut";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("q_proj: rows 64 to 128 of 256"),
                                    HasSubstr("o_proj: columns 96 to 192 of 192")));
  }
}

struct Pair {
  std::unique_ptr<Network> plain, stored;
};
Pair qwen3(at::ScalarType weights = at::kFloat) {
  const auto directory = kFixtures / "models/qwen3";
  return {load_network(directory, {.weights = weights, .activations = at::kFloat}),
          load_network(directory, in_blocks(weights))};
}

TEST(FormattedNetwork, HasHalfTheBytesOfItsMatrices) {
  // Of each of three layers: q 128, k 64 and v 64 rows of 64; 64 of 128; gates and ups 2 x 160 of 64; 64 of
  // 160. Factors of a matrix take whole cache lines.
  const int64_t codes = 3 * (256 * 64 + 64 * 128 + 320 * 64 + 64 * 160), scales = 3 * 4 * 128 * 4;
  // The embedding, which is the output layer too, four norms of a layer, and the last one.
  const int64_t plain = (384 * 64 + 3 * 4 * 128 + 128) * 2;
  const Pair of = qwen3(at::kBFloat16);
  EXPECT_EQ(of.plain->weights().num_bytes(), plain + 2 * codes);
  EXPECT_EQ(of.stored->weights().num_bytes(), plain + codes + scales);
}

TEST(FormattedNetwork, GivesItsNumbersToAPlainOne) {
  const Pair of = qwen3();
  const Tensor before = of.plain->weights().flat().clone();
  of.plain->weights().copy_from(of.stored->weights());
  const Tensor after = of.plain->weights().flat();
  EXPECT_FALSE(after.equal(before));
  EXPECT_TRUE(((after - before).abs() <= before.abs() / 16 + 1e-4).all().item<bool>());
}

TEST(FormattedNetwork, HasChecksumsOfWhatIsStored) {
  const Pair of = qwen3();
  const WeightChecksums before = checksums_of(of.stored->weights());
  EXPECT_EQ(before.size(), of.stored->weights().tensors().size());
  fill_with_noise(of.stored->weights(), 1);
  const WeightChecksums noise = checksums_of(of.stored->weights());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NE(noise[i], before[i]) << before[i].name;
  // Numbers all the same: no code is one of none.
  of.plain->weights().copy_from(of.stored->weights());
  EXPECT_TRUE(at::isfinite(of.plain->weights().flat()).all().item<bool>());
  of.stored->weights().copy_from(qwen3().plain->weights());
  EXPECT_EQ(checksums_of(of.stored->weights()), before);
}

TEST(FormattedNetwork, IsNotTrained) {
  EXPECT_THROW(qwen3().stored->weights().enable_grad(), BugError);
}

TEST(FormattedNetwork, RefusesToShowCodesAsNumbersByName) {
  const Pair of = qwen3();
  const auto& tensors = of.stored->weights().tensors();
  const auto first =
      std::ranges::find_if(tensors, [](const NamedWeight& w) { return w.offset < 0; });
  try {
    Weights::view(of.stored->weights().flat(), *first);
    FAIL() << "codes were taken for numbers";
  } catch (const BugError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.0.self_attn.q_proj.weight"));
  }
}

}  // namespace
}  // namespace slime::model
