#include "model/adapter_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "model/adapters.h"
#include "model/golden_models_for_tests.h"

namespace slime::model {
namespace {

ModelConfig golden(const char* name) { return read_model_config(golden_models::directory(name)); }

std::vector<std::string> modules(const AdapterConfig& config, const char* model) {
  std::vector<std::string> names;
  for (const auto& pair : form_of(config, golden(model)).pairs) names.push_back(pair.module);
  return names;
}

TEST(AdapterFiles, ThatAreNoRegularFilesAreNotWaitedFor) {
  const TemporaryFolder folder("slime-pipes");
  const std::string pipe = (folder.path() / "adapter_config.json").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  try {
    read_adapter_config(folder.path());
    FAIL() << "a pipe was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), pipe + ": is a pipe, not a regular file");
  }
}

TEST(AdapterTargets, AreNamesOrTheirEnds) {
  AdapterConfig config;
  config.targets = {"q_proj", "model.layers.1.mlp.up_proj"};
  config.exclude = {"layers.2.self_attn.q_proj"};
  EXPECT_THAT(modules(config, "qwen3"), ::testing::ElementsAre("model.layers.0.self_attn.q_proj",
                                                               "model.layers.1.self_attn.q_proj",
                                                               "model.layers.1.mlp.up_proj"));
  config.layers = {0};
  EXPECT_THAT(modules(config, "qwen3"), ::testing::ElementsAre("model.layers.0.self_attn.q_proj"));
}

TEST(AdapterTargets, AreAnExpressionForTheWholeName) {
  AdapterConfig config;
  config.target_expression = R"(.*layers\.[02]\.self_attn\.(q|o)_proj)";
  EXPECT_EQ(modules(config, "qwen3").size(), 4);
  config.target_expression = "q_proj";
  EXPECT_THROW(form_of(config, golden("qwen3")), ConfigError);
}

/// Routers, gates of shared experts and the output layer are left out; dense and shared layers are not.
TEST(AdapterTargets, OfAllLinearAreMatricesOfLayers) {
  AdapterConfig config;
  config.targets = {"all-linear"};
  const auto names = modules(config, "deepseek_v3");
  EXPECT_THAT(names, ::testing::IsSupersetOf({"model.layers.0.mlp.gate_proj",
                                              "model.layers.1.mlp.experts.0.up_proj",
                                              "model.layers.1.mlp.shared_experts.down_proj",
                                              "model.layers.0.self_attn.kv_b_proj"}));
  for (const std::string& name : names) {
    EXPECT_FALSE(name.ends_with(".mlp.gate") || name == "lm_head") << name;
    EXPECT_EQ(name.find("experts.gate_up_proj"), std::string::npos) << name;
  }
  for (const std::string& name : modules(config, "qwen2_moe"))
    EXPECT_FALSE(name.ends_with("shared_expert_gate")) << name;
}

TEST(AdapterTargets, ThatHitNothingAreRefusedByName) {
  AdapterConfig config;
  config.targets = {"q_proj", "query"};
  try {
    form_of(config, golden("qwen3"));
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("\"query\""), std::string::npos) << error.what();
  }
}

TEST(AdapterPatterns, DecideByTheFirstThatMeetsTheEnd) {
  AdapterConfig config;
  config.rank = 4;
  config.alpha = 8;
  config.rank_pattern = {{R"(layers\.0\..*)", 2}, {"down_proj", 6}, {"layers.1", 5}};
  config.alpha_pattern = {{"down_proj", 3}};
  const AdapterRules rules(config);
  EXPECT_EQ(rules.rank_of("model.layers.0.mlp.down_proj"), 2);
  EXPECT_EQ(rules.rank_of("model.layers.1.mlp.down_proj"), 6);
  EXPECT_EQ(rules.rank_of("model.layers.1.mlp.up_proj"), 4);  // the key does not reach the end
  EXPECT_EQ(rules.scale_of("model.layers.1.mlp.down_proj", 6), 0.5);
  EXPECT_EQ(rules.scale_of("model.layers.1.mlp.up_proj", 4), 2);
  config.uses_rslora = true;
  EXPECT_EQ(rules.scale_of("model.layers.1.mlp.up_proj", 4), 4);
}

/// A file that a client names may hold any expression.
TEST(AdapterPatterns, ThatTakeTooManyStepsAreRefused) {
  const std::string hostile = "(.*)*[!?]";
  for (const auto& put : {+[](AdapterConfig&c, const std::string&e) {
                            c.rank_pattern = {{e, 2}};
                          },
                          +[](AdapterConfig&c, const std::string&e) {
                            c.alpha_pattern = {{e, 2}};
                          },
                          +[](AdapterConfig&c, const std::string&e) { c.target_expression = e; },
                          +[](AdapterConfig&c, const std::string&e) { c.exclude_expression = e; },
                          +[](AdapterConfig&c, const std::string&e) {
                            c.layers = {0};
                            c.layers_pattern = {e};
                          }}) {
    AdapterConfig config;
    config.targets = {"q_proj"};
    put(config, hostile);
    EXPECT_THROW(form_of(config, golden("qwen3")), ConfigError);
  }
  AdapterConfig grouped;
  grouped.targets = {"q_proj"};
  grouped.layers = {0};
  grouped.layers_pattern = {"(layers)"};
  EXPECT_THROW(form_of(grouped, golden("qwen3")), ConfigError);
  grouped.layers_pattern = {"(?:layers)"};
  EXPECT_EQ(form_of(grouped, golden("qwen3")).pairs.size(), 1U);
  AdapterConfig many;
  many.targets = {"q_proj"};
  for (int i = 0; i < 1025; ++i) many.rank_pattern.emplace_back(fmt::format("layer{}", i), 2);
  EXPECT_THROW(form_of(many, golden("qwen3")), ConfigError);
}

TEST(AdapterForms, WhatRowsOfOneBatchCannotChooseAmongOnAGpuIsRefusedByName) {
  AdapterConfig config;
  config.targets = {"q_proj", "lm_head", "embed_tokens"};
  EXPECT_NO_THROW(check_rows_choose_on_gpu(form_of(config, golden("qwen3"))));
  config.targets = {"all-linear"};
  EXPECT_NO_THROW(check_rows_choose_on_gpu(form_of(config, golden("qwen3_moe"))));
  EXPECT_THAT([&] { check_rows_choose_on_gpu(form_of(config, golden("deepseek_v3"))); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(".kv_b_proj")));
}

TEST(AdapterSavedModules, AreHitByTheEndsOfTheirNames) {
  AdapterConfig config;
  config.targets = {"q_proj"};
  config.saved = {"norm"};
  const AdapterForm form = form_of(config, golden("qwen3"));
  EXPECT_TRUE(form.saves("model.norm.weight"));
  EXPECT_TRUE(form.saves("model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(form.saves("model.layers.0.self_attn.q_norm.weight"));
  config.saved = {"nothing"};
  EXPECT_THROW(form_of(config, golden("qwen3")), ConfigError);
}

}  // namespace
}  // namespace slime::model
