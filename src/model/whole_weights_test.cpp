#include "model/whole_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "comm/parallel_layout.h"
#include "comm/unconnected_group.h"
#include "core/json.h"
#include "core/temporary_folder.h"
#include "model/block_models_for_tests.h"
#include "model/network.h"
#include "model/safetensors.h"
#include "model/stored_parts.h"

namespace slime::model {
namespace {

/// What a rank of so many has of a fixture, with zeros for weights.
struct RankOfSeveral {
  RankOfSeveral(const ModelConfig& config, int rank, int size,
                const Precision& precision = Precision::of("float32"))
      : mesh(comm::engine_layout(size), rank,
             [&](comm::Axis, const std::vector<int>& members) {
               const bool is_alone = members.size() == 1;
               return std::make_unique<comm::UnconnectedGroup>(is_alone ? 0 : rank,
                                                               static_cast<int>(members.size()));
             }),
        network(make_blank_network(config, precision, mesh)) {}
  comm::Mesh mesh;
  std::unique_ptr<Network> network;
};

ModelConfig config_of(const std::string& fixture) {
  ModelConfig config = read_model_config(golden_models::directory(fixture));
  config.vocab_size = 317;  // no multiple of two
  return config;
}

class WholeWeights : public ::testing::TestWithParam<const char*> {};

/// The slow twin: each tensor by its name, cut by its slice.
TEST_P(WholeWeights, ARankTakesItsSlicesOfPiecesThatEndAnywhere) {
  const ModelConfig config = config_of(GetParam());
  const auto whole = make_uniform_network(config, Precision::of("float32"), 1);
  const Tensor& whole_N = whole->weights().flat();
  const std::string_view all(static_cast<const char*>(whole_N.data_ptr()), whole_N.nbytes());
  for (const int size : {1, 2}) {
    for (int rank = 0; rank < size; ++rank) {
      RankOfSeveral mine(config, rank, size);
      Weights& own = mine.network->weights();
      ASSERT_EQ(whole_bytes(own), static_cast<int64_t>(all.size()));
      for (std::size_t begin = 0, length = 1; begin < all.size();
           begin += length, length = 1 + (length * 31 + 777) % 5003)
        write_whole_(own, static_cast<int64_t>(begin), all.substr(begin, length));
      std::set<std::string> names;
      for (const NamedWeight& weight : own.tensors()) {
        names.insert(weight.name);
        const auto& tensors = whole->weights().tensors();
        const auto found = std::ranges::find(tensors, weight.name, &NamedWeight::name);
        ASSERT_NE(found, tensors.end()) << weight.name;
        const Tensor expected = weight.slices.of(Weights::view(whole_N, *found));
        EXPECT_TRUE(at::equal(Weights::view(own.flat(), weight), expected)) << weight.name;
      }
      EXPECT_EQ(names.size(), whole->weights().tensors().size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WholeWeights,
                         ::testing::ValuesIn(golden_models::kinds(golden_models::divides_by_two)),
                         golden_models::name_of);

Precision bf16_in_blocks() {
  return {.weights = at::kBFloat16,
          .activations = at::kFloat,
          .matrices = kernels::MatrixFormat::kFp8Blocks};
}

/// A plain network and its codes, whole.
struct CodedModel {
  explicit CodedModel(const char* name)
      : config(golden_models::in_whole_blocks(name)),
        plain(make_network(config, {.weights = at::kBFloat16, .activations = at::kFloat}, 7)),
        codes(make_blank_network(config, bf16_in_blocks())) {
    const at::NoGradGuard no_grad;
    codes->weights().copy_from(plain->weights());
  }
  std::string bytes() const {
    std::string all;
    for (const Tensor& buffer : codes->weights().buffers().numbers())
      all.append(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes());
    return all;
  }
  ModelConfig config;
  std::unique_ptr<Network> plain, codes;
};

class WholeCodes : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeCodes, ARankTakesItsSlicesOfCodesAndFactorsFromPiecesThatEndAnywhere) {
  const CodedModel whole(GetParam());
  const std::string bytes = whole.bytes();
  const std::string_view all = bytes;
  const auto whole_parts = stored_parts(whole.codes->weights());
  for (const int size : {1, 2}) {
    for (int rank = 0; rank < size; ++rank) {
      RankOfSeveral mine(whole.config, rank, size, bf16_in_blocks());
      Weights& own = mine.network->weights();
      ASSERT_EQ(whole_bytes(own), static_cast<int64_t>(all.size()));
      for (std::size_t begin = 0, length = 1; begin < all.size();
           begin += length, length = 1 + (length * 31 + 777) % 50'021)
        write_whole_(own, static_cast<int64_t>(begin), all.substr(begin, length));
      int64_t num_codes = 0;
      for (const StoredPart& part : stored_parts(own)) {
        const auto found = std::ranges::find(whole_parts, part.name, &StoredPart::name);
        ASSERT_NE(found, whole_parts.end()) << part.name;
        EXPECT_TRUE(at::equal(part.value, part.slices.of(found->value))) << part.name;
        num_codes += part.offset < 0 ? 1 : 0;
      }
      EXPECT_EQ(stored_parts(own).size(), whole_parts.size());
      EXPECT_GT(num_codes, 4) << "two of a matrix";
    }
  }
}

/// What a rank makes of its own numbers is what it would be sent.
TEST_P(WholeCodes, AreThoseThatARankMakesOfItsSlices) {
  const at::NoGradGuard no_grad;
  const CodedModel whole(GetParam());
  const Tensor& plain_N = whole.plain->weights().flat();
  for (int rank = 0; rank < 2; ++rank) {
    const Precision precision{.weights = at::kBFloat16, .activations = at::kFloat};
    RankOfSeveral plain(whole.config, rank, 2, precision),
        sent(whole.config, rank, 2, bf16_in_blocks()),
        made(whole.config, rank, 2, bf16_in_blocks());
    write_whole_(plain.network->weights(), 0,
                 {static_cast<const char*>(plain_N.const_data_ptr()), plain_N.nbytes()});
    made.network->weights().copy_from(plain.network->weights());
    write_whole_(sent.network->weights(), 0, whole.bytes());
    const WeightBuffers a = made.network->weights().buffers(),
                        b = sent.network->weights().buffers();
    EXPECT_TRUE(at::equal(a.flat_N, b.flat_N));
    EXPECT_TRUE(at::equal(a.codes_Q, b.codes_Q));
    EXPECT_TRUE(at::equal(a.scales_S, b.scales_S));
  }
}

TEST_P(WholeCodes, AreMadeOfWholeTensorsWithoutANetwork) {
  const CodedModel whole(GetParam());
  const StoredForms forms(whole.config, kernels::MatrixFormat::kFp8Blocks);
  const Weights& plain = whole.plain->weights();
  const auto expected = stored_parts(whole.codes->weights());
  std::size_t next = 0;
  for (const NamedWeight& weight : plain.tensors()) {
    for (const auto& part : forms.parts_of(weight.name, Weights::view(plain.flat(), weight))) {
      ASSERT_LT(next, expected.size());
      EXPECT_EQ(part.name, expected[next].name);
      EXPECT_TRUE(at::equal(part.value, expected[next].value)) << part.name;
      ++next;
    }
  }
  EXPECT_EQ(next, expected.size());
}

/// Slices of codes that a file has, whose factors are not those that would be made of their numbers.
TEST(WholeCodesOfAFile, AreReadByTheRanksThatHaveThem) {
  const CodedModel model("qwen3");
  Tensor(model.codes->weights().buffers().scales_S).mul_(1.01);
  const auto whole_parts = stored_parts(model.codes->weights());
  NamedTensors stored;
  for (const StoredPart& part : whole_parts) {
    const bool is_codes = part.value.scalar_type() == at::kByte;
    stored.emplace_back(part.name, is_codes ? part.value.view(at::kFloat8_e4m3fn) : part.value);
  }
  const TemporaryFolder folder("codes_of_a_file");
  write_safetensors(folder.path() / "model.safetensors", stored);
  json::object config = model.config.raw;
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  write_file(folder.path() / "config.json", json_text(config));
  for (int rank = 0; rank < 2; ++rank) {
    const RankOfSeveral place(model.config, rank, 2, bf16_in_blocks());
    const auto own = load_network(folder.path(), bf16_in_blocks(), place.mesh);
    for (const StoredPart& part : stored_parts(own->weights())) {
      const auto found = std::ranges::find(whole_parts, part.name, &StoredPart::name);
      ASSERT_NE(found, whole_parts.end()) << part.name;
      EXPECT_TRUE(at::equal(part.value, part.slices.of(found->value))) << part.name;
    }
  }
}

/// Of the bytes of bfloat16, with the embedding, the output layer and the norms, which stay as they are.
TEST(WholeCodesOfADeepModel, AreALittleMoreThanHalfTheBytes) {
  ModelConfig config = golden_models::in_whole_blocks("qwen3");
  config.num_layers = 12;
  config.window.resize(12);
  const auto bytes_of = [&](const Precision& precision) {
    return static_cast<double>(whole_bytes(make_blank_network(config, precision)->weights()));
  };
  const double share = bytes_of(bf16_in_blocks()) / bytes_of({.weights = at::kBFloat16});
  EXPECT_GT(share, 0.5);
  EXPECT_LT(share, 0.52);
}

INSTANTIATE_TEST_SUITE_P(Models, WholeCodes, ::testing::ValuesIn(golden_models::kBlockModels),
                         golden_models::name_of);

}  // namespace
}  // namespace slime::model
