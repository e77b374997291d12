// Files in blocks of 128, read by networks whose matrices are codes in the same blocks.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "kernels/matrix_formats.h"
#include "model/golden_models_for_tests.h"
#include "model/network.h"
#include "model/safetensors.h"

namespace slime::model {
namespace {

using ::testing::HasSubstr;

std::filesystem::path fixture(const std::string& name) { return golden_models::directory(name); }

bool holds(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

/// The shape of a fixture, and tensors of the test's.
class StoredCodes : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("slime_codes_" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const NamedTensors& stored) const {
    write_safetensors(directory_ / "model.safetensors", stored);
    json::object config = read_json_file(fixture("qwen3") / "config.json").as_object();
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    write_file(directory_ / "config.json", json_text(config));
  }

  std::filesystem::path directory_;
};

TEST_F(StoredCodes, InBlocksOf128IsReadAsItIsByANetworkInTheSameBlocks) {
  const SafetensorsFile file(fixture("qwen3") / "model.safetensors");
  const kernels::FormatRow& format = kernels::row_of(kernels::MatrixFormat::kFp8Blocks);
  std::map<std::string, std::vector<Tensor>> parts;
  NamedTensors stored;
  for (const auto& [name, entry] : file.tensors()) {
    const Tensor plain = file.read(name);
    // One layer's output products stay plain, as modules that a model does not convert.
    if (!holds(name, "_proj.weight") || holds(name, "layers.1.self_attn.o_proj")) {
      stored.emplace_back(name, plain);
      continue;
    }
    const Tensor codes = at::empty(plain.sizes(), at::kFloat8_e4m3fn),
                 scales = at::empty({kernels::scale_rows(format, plain.size(0)),
                                     kernels::scale_columns(format, plain.size(1))},
                                    at::kFloat);
    kernels::quantise_(format, plain, codes, scales);
    scales.mul_(1.01);  // no factor that would be made of the numbers again
    stored.emplace_back(name, codes);
    stored.emplace_back(name + "_scale_inv", scales);
    parts[name] = {codes, scales};
  }
  write(stored);
  Precision precision = Precision::of("float32");
  const auto numbers = load_network(directory_, precision);
  precision.matrices = kernels::MatrixFormat::kFp8Blocks;
  const auto codes = load_network(directory_, precision);
  const Weights& weights = codes->weights();
  std::size_t compared = 0;
  for (std::size_t i = 0; i < weights.tensors().size(); ++i) {
    const auto expected = parts.find(weights.tensors()[i].name);
    if (expected == parts.end()) continue;
    const std::vector<Tensor> own = weights.stored(i);
    EXPECT_TRUE(own[0].view(at::kByte).equal(expected->second[0].view(at::kByte))) << i;
    EXPECT_TRUE(own[1].equal(expected->second[1])) << i;
    ++compared;
  }
  EXPECT_EQ(compared, parts.size());
  // What was plain in the file is made of its numbers; all else means what the plain network has.
  const auto means = load_network(fixture("qwen3"), Precision::of("float32"));
  means->weights().copy_from(weights);
  for (const NamedWeight& weight : means->weights().tensors()) {
    const Tensor own = Weights::view(means->weights().flat(), weight),
                 expected = Weights::view(numbers->weights().flat(), weight);
    if (parts.contains(weight.name)) {
      EXPECT_TRUE(own.equal(expected)) << weight.name;
    } else {
      EXPECT_TRUE(((own - expected).abs() <= expected.abs() / 16 + 1e-3).all().item<bool>());
    }
  }
}

TEST_F(StoredCodes, CodesOfNoNumberAreRefusedByName) {
  const SafetensorsFile file(fixture("qwen3") / "model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  NamedTensors stored;
  for (const auto& [each, entry] : file.tensors()) {
    if (each != name) stored.emplace_back(each, file.read(each));
  }
  const Tensor codes = at::zeros(file.tensors().at(name).shape, at::kByte);
  codes[3][5].fill_(0xff);
  stored.emplace_back(name, codes.view(at::kFloat8_e4m3fn));
  stored.emplace_back(name + "_scale_inv", at::ones({1, 2}));
  write(stored);
  Precision precision = Precision::of("float32");
  precision.matrices = kernels::MatrixFormat::kFp8Blocks;
  try {
    load_network(directory_, precision);
    FAIL() << "a code of no number was read";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/model.safetensors: tensor " + name));
  }
}

}  // namespace
}  // namespace slime::model
