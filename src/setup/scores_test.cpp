#include "setup/scores.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

namespace slime::setup {
namespace {

TEST(Scores, WhatIsNoNumberCannotBeUsed) {
  EXPECT_EQ(reward_problem(0.5, ""), std::nullopt);
  EXPECT_EQ(reward_problem(json::object{{"score", 1}}, "score"), std::nullopt);
  for (const json::value& odd : {json::value(nullptr), json::value("x"), json::value(INFINITY)})
    EXPECT_TRUE(reward_problem(odd, "")) << json_text(odd);
  EXPECT_TRUE(reward_problem(json::object{{"acc", 1}}, "score"));
}

TEST(Scores, AServedTeacherStandsBesideARule) {
  config::RunConfig config;
  config.use_opd = true;
  config.opd_type = "sglang";
  config.rm_url = "http://127.0.0.1:9/generate";
  for (const std::string rule : {"", "math"}) {
    config.rm_type = rule;
    rollout::Scorer scorer;
    scorer.rule.score = make_score(config);
    add_teacher(config, scorer);
    EXPECT_TRUE(scorer.teacher);
    EXPECT_EQ(static_cast<bool>(scorer.rule.of_evaluations), rule.empty())
        << "without a rule an evaluation measures the distance from the teacher";
    Sample sample;
    sample.response = "\\boxed{7}";
    sample.label = "7";
    EXPECT_EQ(scorer.rule.score(sample, {})->to_number<double>(), rule.empty() ? 0.0 : 1.0);
  }
  config.opd_type = "megatron";
  rollout::Scorer scorer;
  add_teacher(config, scorer);
  EXPECT_FALSE(scorer.teacher);
}

TEST(Scores, DistillationWithARuleAndNoLabelsScoresNothing) {
  config::RunConfig config;
  config.use_opd = true;
  config.opd_type = "megatron";
  config.rm_type = "math";
  EXPECT_TRUE(lacks_labels(config));
  Sample sample;
  sample.response = "\\boxed{7}";
  EXPECT_EQ(make_score(config)(sample, {})->to_number<double>(), 0.0);
  sample.label = "7";  // of an evaluation set with labels
  EXPECT_EQ(make_score(config)(sample, {})->to_number<double>(), 1.0);
  config.label_key = "answer";
  EXPECT_FALSE(lacks_labels(config));
  sample.label = nullptr;
  EXPECT_FALSE(make_score(config)(sample, {})) << "a row without the label that it should have";
  config.use_opd = false;
  config.label_key = "";
  EXPECT_FALSE(lacks_labels(config)) << "without a teacher nothing would be learnt";
}

TEST(Scores, GradingIsStrictUnlessTheFlagSaysOtherwise) {
  config::RunConfig config;
  EXPECT_EQ(reward_config(config).grading, reward::Grading::kStrict);
  config.no_rm_strict = true;
  EXPECT_EQ(reward_config(config).grading, reward::Grading::kOriginal);
}

using Seconds = std::chrono::duration<double>;

TEST(Scores, EachSampleHasTheDeadlineOfItsOwnReward) {
  config::RunConfig config;
  config.rm_type = "math";
  config.rm_url = "http://judge/score";
  config.remote_rm_attempts = 2;
  Sample ruled;
  Sample judged;
  judged.metadata = {{"rm_type", "remote_rm"}};
  EXPECT_EQ(reward_deadline(config, ruled), Seconds(30));
  EXPECT_EQ(reward_deadline(config, judged), Seconds(2 * (120 + 31)));
  config.reward_timeout_seconds = 5;
  EXPECT_EQ(reward_deadline(config, ruled), Seconds(5));
  EXPECT_EQ(reward_deadline(config, judged), Seconds(2 * (5 + 31)));
  EXPECT_EQ(reward_config(config).call_timeout, std::chrono::seconds(5));
  config.reward_timeout_seconds = 500;
  EXPECT_EQ(reward_config(config).call_timeout, std::chrono::seconds(500));
}

TEST(Scores, ATeacherElsewhereIsAServerAndARowsOwnRuleIsNone) {
  config::RunConfig config;
  config.use_opd = true;
  config.opd_type = "sglang";
  config.remote_rm_attempts = 1;
  Sample ruled;
  ruled.metadata = {{"rm_type", "math"}};
  EXPECT_EQ(reward_deadline(config, Sample()), Seconds(120 + 31));
  EXPECT_EQ(reward_deadline(config, ruled), Seconds(30));
}

TEST(Scores, WhereAnyRowMayAskAServerThereAreThreadsToWaitForIt) {
  config::RunConfig config;
  config.rm_type = "math";
  config.reward_threads = 3;
  EXPECT_EQ(num_reward_threads(config), 3);
  config.rm_url = "http://judge/score";
  EXPECT_EQ(num_reward_threads(config), 64);
  config.reward_threads = 100;
  EXPECT_EQ(num_reward_threads(config), 100);
}

}  // namespace
}  // namespace slime::setup
