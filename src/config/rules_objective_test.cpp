// What --pg-loss-type and --use-score-centering cannot go with, and what they can.

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

constexpr const char* kRun =
    "--hf-checkpoint /tmp --prompt-data x.jsonl --rollout-batch-size 4 --n-samples-per-prompt 8 "
    "--num-rollout 3 --rollout-max-response-len 16 --rm-type math ";

ParsedFlags parsed_with(const std::string& more) {
  std::istringstream stream(kRun + more);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  ParsedFlags parsed = parse_flags(words);
  complete_and_validate(parsed);
  return parsed;
}

std::string refusal_of(const std::string& more) {
  try {
    parsed_with(more);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct Wrong {
  const char* flags;
  const char* says;
};

class WrongObjective : public testing::TestWithParam<Wrong> {};

TEST_P(WrongObjective, IsRefusedByName) {
  const std::string text = refusal_of(GetParam().flags);
  EXPECT_NE(text.find(GetParam().says), std::string::npos) << "said: " << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongObjective,
    testing::Values(
        Wrong{"--use-rollout-logprobs --use-tis", "with --pg-loss-type reinforce both work"},
        Wrong{"--pg-loss-type reinforce --advantage-estimator gspo",
              "--pg-loss-type reinforce: --advantage-estimator gspo is a ratio of whole"},
        Wrong{"--pg-loss-type ppo --advantage-estimator cispo --eps-clip 1",
              "--pg-loss-type ppo: --advantage-estimator cispo has an objective of its own"},
        Wrong{"--use-score-centering --loss-type custom_loss",
              "--use-score-centering: needs --loss-type policy_loss"},
        Wrong{"--use-score-centering --pg-loss-type ppo",
              "--use-score-centering and --pg-loss-type ppo"},
        Wrong{"--use-score-centering --advantage-estimator gspo",
              "--use-score-centering and --advantage-estimator gspo"},
        Wrong{"--use-score-centering --advantage-estimator cispo --eps-clip 1",
              "--use-score-centering and --advantage-estimator cispo"},
        Wrong{"--use-score-centering --use-opsm", "--use-score-centering and --use-opsm"},
        Wrong{"--use-score-centering --get-mismatch-metrics",
              "--use-score-centering and --get-mismatch-metrics"},
        Wrong{"--use-score-centering --use-kl-loss --use-unbiased-kl",
              "--use-score-centering and --use-unbiased-kl"},
        Wrong{"--use-score-centering --use-opd --opd-type megatron --opd-teacher-load /tmp",
              "--use-score-centering and --use-opd"},
        Wrong{"--use-score-centering --custom-pg-loss-reducer-function-path a.b",
              "--use-score-centering and --custom-pg-loss-reducer-function-path"},
        Wrong{"--use-score-centering --use-tis --custom-tis-function-path "
              "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
              "icepop_function of"},
        Wrong{"--use-score-centering --use-tis --custom-tis-function-path my.weights",
              "each token that could be drawn is weighed"},
        Wrong{"--use-score-centering --use-tis --tis-clip-low -1",
              "needs 0 <= --tis-clip-low <= --tis-clip"},
        Wrong{"--use-score-centering --rollout-top-k 40",
              "--use-score-centering and --rollout-top-k 40"},
        Wrong{"--use-score-centering --score-centering-top-k 0",
              "--score-centering-top-k 0: should be at least 1"},
        Wrong{"--use-score-centering --custom-generate-function-path "
              "slime.rollout.sglang_streaming_rollout.generate_streaming",
              "use slime.rollout.sglang_rollout.generate"}));

TEST(Objective, AllThatIsWrongIsSaidAtOnce) {
  const std::string text =
      refusal_of("--use-score-centering --use-opsm --get-mismatch-metrics --rollout-top-k 5");
  for (const char* flag : {"--use-opsm", "--get-mismatch-metrics", "--rollout-top-k 5"})
    EXPECT_NE(text.find(flag), std::string::npos) << text;
}

TEST(Objective, WhatBecameValidIs) {
  for (const char* flags :
       {"--use-rollout-logprobs --use-tis --pg-loss-type reinforce",
        "--use-rollout-logprobs --use-tis --use-score-centering", "--pg-loss-type ppo",
        "--pg-loss-type ppo --advantage-estimator gspo", "--score-centering-top-k 0",
        "--use-score-centering --pg-loss-type reinforce --rollout-top-p 0.9",
        "--use-score-centering --rollout-top-p 0.9 --score-centering-top-k 0",
        "--use-score-centering --use-kl-loss --kl-loss-coef 0.1 --entropy-coef 0.01",
        "--use-score-centering --use-tis --custom-tis-function-path "
        "slime.backends.megatron_utils.loss.vanilla_tis_function",
        "--use-score-centering --use-tis --custom-tis-function-path "
        "slime.backends.megatron_utils.loss.icepop_function"})
    EXPECT_EQ(refusal_of(flags), "") << flags;
}

TEST(Objective, MetricsOfTheMismatchAloneAreThoseOfTruncation) {
  const auto warnings = parsed_with("--get-mismatch-metrics").warnings;
  EXPECT_TRUE(std::ranges::any_of(warnings, [](const std::string& warning) {
    return warning.find("--get-mismatch-metrics: no --custom-tis-function-path") == 0;
  }));
}

}  // namespace
}  // namespace slime::config
