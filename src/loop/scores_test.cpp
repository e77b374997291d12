#include "loop/scores.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slime::loop {
namespace {

TEST(Scores, WhatIsNoNumberCannotBeUsedAndATeachersColumnCan) {
  EXPECT_EQ(reward_problem(0.5, ""), std::nullopt);
  EXPECT_EQ(reward_problem(json::object{{"score", 1}}, "score"), std::nullopt);
  EXPECT_EQ(reward_problem(json::object{{"teacher_log_probs", json::array{-1.0}}}, ""),
            std::nullopt);
  for (const json::value& odd : {json::value(nullptr), json::value("x"), json::value(INFINITY)})
    EXPECT_TRUE(reward_problem(odd, "")) << json::serialize(odd);
  EXPECT_TRUE(reward_problem(json::object{{"acc", 1}}, "score"));
}

TEST(Scores, GradingIsStrictUnlessTheFlagSaysOtherwise) {
  config::RunConfig config;
  EXPECT_EQ(reward_config(config).grading, reward::Grading::kStrict);
  config.no_rm_strict = true;
  EXPECT_EQ(reward_config(config).grading, reward::Grading::kOriginal);
}

}  // namespace
}  // namespace slime::loop
