#include "roles/engine_ranks.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"

namespace slime::roles {
namespace {

std::string why_refused(const std::string& fixture, int64_t num_ranks) {
  try {
    check_engine_ranks(model::read_model_config(std::filesystem::path(SLIME_SOURCE_DIR) /
                                                "tests/fixtures/models" / fixture),
                       num_ranks, "--tp-size");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CheckEngineRanks, AnEngineHasAsManyRanksAsItsModelCanBeSlicedFor) {
  EXPECT_EQ(why_refused("qwen3", 1), "");
  EXPECT_EQ(why_refused("qwen3", 2), "");
  EXPECT_EQ(why_refused("gemma3_text", 2), "");
  EXPECT_EQ(why_refused("qwen3_5", 2), "");
  EXPECT_EQ(why_refused("phi3", 2), "");
  EXPECT_EQ(why_refused("olmo2", 2), "");
  EXPECT_EQ(why_refused("qwen3_moe", 1), "");
  for (const char* has_experts :
       {"qwen3_moe", "glm4_moe", "glm4_moe_lite", "kimi_k2", "deepseek_v2", "deepseek_v3",
        "deepseek_v32", "glm_moe_dsa", "qwen3_next", "qwen3_5_moe", "gpt_oss", "minimax_m2"})
    EXPECT_EQ(why_refused(has_experts, 2), "") << has_experts;
}

TEST(CheckEngineRanks, WhatCannotBeSlicedIsRefusedWithTheReason) {
  const auto says = [](const std::string& why, const char* reason) {
    return why.starts_with("--tp-size ") && why.find(reason) != std::string::npos;
  };
  EXPECT_PRED2(says, why_refused("qwen3", 4), "does not divide the model's 2 key-value heads");
  EXPECT_PRED2(says, why_refused("mistral", 2), "does not divide the model's 1 key-value heads");
  EXPECT_PRED2(says, why_refused("deepseek_v3", 8),
               "does not divide the model's 4 attention heads");
}

}  // namespace
}  // namespace slime::roles
