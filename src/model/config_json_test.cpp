#include "model/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/families/family.h"
#include "model/golden_models_for_tests.h"

namespace slime::model {
namespace {

const std::filesystem::path kModels = SLIME_SOURCE_DIR "/tests/fixtures/models";

ModelConfig again(const ModelConfig& config) {
  ModelConfig parsed = parse_model_config(config_json(config), "config.json");
  parsed.raw.clear();
  return parsed;
}

/// A fixture's; of models of text alone the form that recent libraries write.
ModelConfig config_of(const Family& family) {
  std::string name(family.model_type);
  if (std::filesystem::exists(kModels / name)) return read_model_config(kModels / name);
  name.resize(name.size() - std::string_view("_text").size());
  const auto path = kModels / name / "config.v5.json";
  return parse_model_config(read_json_file(path).as_object(), path.string());
}

/// A configuration as a program would make it, without a file: what the golden model of the family says, with
/// other numbers where any will do.
ModelConfig made_in_code(std::string_view model_type) {
  ModelConfig config = config_of(*find_family(model_type));
  config.raw.clear();
  config.vocab_size = 300;
  config.norm_eps = 3e-5;
  config.max_positions = 512;
  config.initializer_range = 0.03;
  config.dtype = "float16";
  config.eos_token_ids = {2, 7};
  return config;
}

TEST(ConfigJson, OfAFileItIsTheFile) {
  for (const Family& family : families()) {
    const ModelConfig config = config_of(family);
    EXPECT_EQ(config_json(config), config.raw) << family.model_type;
    EXPECT_EQ(parse_model_config(config_json(config), "config.json").raw, config.raw);
  }
}

TEST(ConfigJson, WithoutItsFileEveryFixtureMeansTheSameModel) {
  for (const char* name : golden_models::all()) {
    ModelConfig config = read_model_config(kModels / name);
    config.raw.clear();
    EXPECT_EQ(again(config), config) << name;
  }
}

TEST(ConfigJson, MadeInCodeEveryFamilyMeansTheSameModel) {
  for (const Family& family : families()) {
    const ModelConfig config = made_in_code(family.model_type);
    EXPECT_EQ(again(config), config) << family.model_type;
    EXPECT_EQ(config_json(config).at("architectures").at(0), json::value(family.architecture));
  }
  ModelConfig scaled = made_in_code("llama");
  scaled.rope = {.kind = Rope::Kind::kLlama3,
                 .theta = 5e5,
                 .factor = 8,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4,
                 .original_max_positions = 256};
  ModelConfig stretched = scaled;
  stretched.rope = {.kind = Rope::Kind::kYarn,
                    .factor = 4,
                    .original_max_positions = 256,
                    .beta_fast = 16,
                    .truncates = false,
                    .mscale = 0.5};
  EXPECT_EQ(again(stretched), stretched);
  stretched.rope = {.kind = Rope::Kind::kDynamic, .factor = 2};
  EXPECT_EQ(again(stretched), stretched);
  for (const char* family : {"llama", "phi3"}) {
    ModelConfig two_sided = made_in_code(family);
    const auto half = static_cast<size_t>(two_sided.rotary_dim / 2);
    two_sided.rope = {.kind = Rope::Kind::kLongrope,
                      .factor = 3,
                      .original_max_positions = 100,
                      .attention_factor = 1.25,
                      .short_factors = std::vector<double>(half, 1.5),
                      .long_factors = std::vector<double>(half, 7)};
    EXPECT_EQ(again(two_sided), two_sided) << family;
  }
  scaled.has_qkv_bias = scaled.has_output_bias = scaled.has_mlp_bias = true;
  EXPECT_EQ(again(scaled), scaled);
}

TEST(ConfigJson, APartOfAHeadRotatesThoughItsShareIsNoRoundNumber) {
  ModelConfig config = made_in_code("phi3");
  config.head_dim = 22;
  for (config.rotary_dim = 2; config.rotary_dim <= 22; config.rotary_dim += 2)
    EXPECT_EQ(again(config).rotary_dim, config.rotary_dim);
}

TEST(ConfigJson, WhatTheFamilyCannotSayIsRefused) {
  ModelConfig config = made_in_code("qwen2");
  config.has_qkv_bias = false;
  EXPECT_THROW(config_json(config), ConfigError);
  config = made_in_code("mistral");
  config.window = {0, 32};
  EXPECT_THROW(config_json(config), ConfigError);
}

}  // namespace
}  // namespace slime::model
