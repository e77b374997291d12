/// Fresh weights of gated delta nets, and those that files hold in float32.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "model/network.h"
#include "model/safetensors.h"
#include "model/save.h"

namespace slime::model {
namespace {

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models" / name;
}

bool has(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

void expect_same_files(const std::filesystem::path& before, const std::filesystem::path& after) {
  const SafetensorsFile expected(before), found(after);
  ASSERT_EQ(expected.tensors().size(), found.tensors().size());
  for (const auto& [name, stored] : expected.tensors()) {
    ASSERT_TRUE(found.tensors().contains(name)) << name;
    const Tensor a = expected.read(name), b = found.read(name);
    ASSERT_EQ(a.scalar_type(), b.scalar_type()) << name;
    EXPECT_TRUE(a.equal(b)) << name;
  }
}

class GatedDeltaFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("slime_delta_" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

TEST_F(GatedDeltaFiles, OfAFreshGatedDeltaNetForgetsAtTheRatesOfPublishedOnes) {
  const auto network =
      make_network(read_model_config(fixture("qwen3_next")), Precision::of("float32"), 5);
  for (const NamedWeight& weight : network->weights().tensors()) {
    const Tensor value = Weights::view(network->weights().flat(), weight);
    if (has(weight.name, "dt_bias") || has(weight.name, "linear_attn.norm")) {
      EXPECT_TRUE(value.eq(1).all().item<bool>()) << weight.name;
    } else if (has(weight.name, "norm.weight")) {
      EXPECT_TRUE(value.eq(0).all().item<bool>()) << weight.name;
    }
    if (has(weight.name, "A_log")) {
      EXPECT_LT(value.exp().max().item<double>(), 16) << weight.name;
      EXPECT_GT(value.std().item<double>(), 0) << weight.name;
    }
  }
}

TEST_F(GatedDeltaFiles, KeepsTheDigitsOfWeightsThatFilesHoldInFloat32) {
  ModelConfig config = read_model_config(fixture("qwen3_5"));
  config.carried_prefixes = {};
  save_network(*make_network(config, Precision::of("float32"), 1), directory_);
  NamedTensors tensors;
  {
    const SafetensorsFile file(directory_ / "model.safetensors");
    for (const auto& [name, stored] : file.tensors()) {
      const Tensor value = file.read(name);
      tensors.emplace_back(name, has(name, "A_log") ? value : value.to(at::kBFloat16));
    }
  }
  write_safetensors(directory_ / "model.safetensors", tensors);
  const auto network = load_network(directory_, Precision::of("bfloat16"));
  std::filesystem::create_directory(directory_ / "saved");
  save_network(*network, directory_ / "saved");
  expect_same_files(directory_ / "model.safetensors", directory_ / "saved" / "model.safetensors");

  // Trained ones have the digits of the weights, in the same form.
  for (const NamedWeight& weight : network->weights().tensors()) {
    if (has(weight.name, "layers.0.linear_attn.A_log"))
      Weights::view(network->weights().flat(), weight).fill_(0.5);
  }
  save_network(*network, directory_ / "saved");
  const Tensor trained = SafetensorsFile(directory_ / "saved" / "model.safetensors")
                             .read("model.language_model.layers.0.linear_attn.A_log");
  EXPECT_EQ(trained.scalar_type(), at::kFloat);
  EXPECT_TRUE(trained.eq(0.5).all().item<bool>());
}

}  // namespace
}  // namespace slime::model
