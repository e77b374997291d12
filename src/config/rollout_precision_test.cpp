// --rollout-precision, and its other name.

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

ParsedFlags completed(const std::string& flags) {
  std::istringstream stream(
      "--hf-checkpoint /tmp --prompt-data x.jsonl --rollout-batch-size 4 --n-samples-per-prompt 8 "
      "--num-rollout 3 --rollout-max-response-len 16 --rm-type math " +
      flags);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  ParsedFlags parsed = parse_flags(words);
  complete_and_validate(parsed);
  return parsed;
}

bool warns(const ParsedFlags& parsed) {
  return std::ranges::any_of(parsed.warnings, [](const std::string& line) {
    return line.find("train_rollout_k3") != std::string::npos;
  });
}

TEST(RolloutPrecision, AnEngineWithCodesTakesTurnsWithWeightsOfItsOwn) {
  const ParsedFlags plain = completed(""), codes = completed("--sglang-quantization fp8");
  EXPECT_TRUE(plain.config.shares_weights());
  EXPECT_FALSE(warns(plain));
  EXPECT_TRUE(codes.config.has_codes());
  EXPECT_TRUE(codes.config.takes_turns());
  EXPECT_FALSE(codes.config.shares_weights());
  EXPECT_TRUE(warns(codes)) << "the other way to say it counts too";
  EXPECT_FALSE(warns(completed("--rollout-precision fp8 --use-tis")));
  EXPECT_FALSE(warns(completed("--rollout-precision fp8 --use-rollout-logprobs")));
}

TEST(RolloutPrecision, EnginesElsewhereAndOfSeveralRanksHaveCodesToo) {
  for (const char* where :
       {"--rollout-num-gpus 2", "--rollout-num-gpus 2 --rollout-num-gpus-per-engine 2",
        "--actor-num-gpus-per-node 2", "--actor-num-gpus-per-node 2 --colocate"}) {
    const ParsedFlags parsed = completed(std::string("--rollout-precision fp8 ") + where);
    EXPECT_TRUE(parsed.config.has_codes()) << where;
    EXPECT_FALSE(parsed.config.shares_weights()) << where;
  }
}

TEST(RolloutPrecision, WhatItCannotBeIsRefusedInTheWordsThatWereTyped) {
  const auto refusal = [](const std::string& flags) -> std::string {
    try {
      completed(flags);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  };
  const auto expect_said = [&](const std::string& flags, const std::string& said) {
    EXPECT_NE(refusal(flags).find(said), std::string::npos) << refusal(flags);
  };
  const std::string apart = "--sglang-quantization fp8 --rollout-num-gpus 2 ";
  expect_said(apart + "--update-weight-mode delta",
              "--sglang-quantization fp8 and --update-weight-mode delta: codes are sent whole");
  expect_said(apart + "--update-weight-transport disk --update-weight-disk-dir /tmp/x",
              "--sglang-quantization fp8 and --update-weight-transport disk");
  expect_said("--rollout-precision fp8 --rollout-external-engine-addrs 127.0.0.1:30000",
              "--rollout-precision fp8: servers that others started");
  expect_said("--rollout-precision int4", "--rollout-precision int4");
  expect_said("--sglang-quantization awq", "--sglang-quantization awq");
}

}  // namespace
}  // namespace slime::config
