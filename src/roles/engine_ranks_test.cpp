#include "roles/engine_ranks.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "model/golden_models_for_tests.h"

namespace slime::roles {
namespace {

std::string why_refused(const std::string& fixture, int64_t num_ranks) {
  try {
    check_engine_ranks(model::read_model_config(golden_models::directory(fixture)), num_ranks,
                       "--tp-size");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CheckEngineRanks, AnEngineHasAsManyRanksAsItsModelCanBeSlicedFor) {
  for (const char* name : golden_models::all()) EXPECT_EQ(why_refused(name, 1), "") << name;
  for (const char* name : golden_models::all(golden_models::divides_by_two))
    EXPECT_EQ(why_refused(name, 2), "") << name;
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
