// What --true-on-policy cannot go with, and what it leaves out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

using testing::HasSubstr;

constexpr const char* kOnPolicyRun =
    "--hf-checkpoint /tmp --prompt-data x.jsonl --rollout-batch-size 4 --n-samples-per-prompt 8 "
    "--num-rollout 3 --rollout-max-response-len 16 --rm-type math --true-on-policy ";

ParsedFlags on_policy_with(const std::string& more) {
  std::istringstream stream(kOnPolicyRun + more);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  ParsedFlags parsed = parse_flags(words);
  complete_and_validate(parsed);
  return parsed;
}

struct OnPolicyRefusal {
  const char* flags;
  const char* says;
};

class OnPolicyRefuses : public testing::TestWithParam<OnPolicyRefusal> {};

TEST_P(OnPolicyRefuses, WhatChangesBits) {
  try {
    on_policy_with(GetParam().flags);
    FAIL() << GetParam().flags << " was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::string("--true-on-policy: ") + GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OnPolicyRefuses,
    testing::Values(
        OnPolicyRefusal{"--device hip", "engine and trainer add in different orders on AMD's GPUs"},
        OnPolicyRefusal{"--device cuda --rollout-verify-tokens 0",
                        "a GPU decodes in another order"},
        OnPolicyRefusal{"--device cuda --fp32", "a GPU has the trainer's order in bfloat16"},
        OnPolicyRefusal{"--device cuda --lora-rank 8", "a GPU adds adapters in orders"},
        OnPolicyRefusal{"--actor-num-gpus-per-node 2", "several ranks and engines elsewhere"},
        OnPolicyRefusal{"--rollout-num-gpus 1", "several ranks and engines elsewhere"},
        OnPolicyRefusal{"--train-async", "needs tokens of the weights that are trained"},
        OnPolicyRefusal{"--rollout-top-p 0.9", "log-probs of a cut distribution"},
        OnPolicyRefusal{"--rollout-top-k 5", "log-probs of a cut distribution"},
        OnPolicyRefusal{"--fp32 --sglang-kv-cache-dtype bf16", "--sglang-kv-cache-dtype bfloat16"},
        OnPolicyRefusal{"--rollout-precision fp8", "an engine with matrices in codes"}));

TEST(OnPolicy, WhatMakesUpForADifferenceIsLeftOutAndSaid) {
  const ParsedFlags plain = on_policy_with("--use-tis --use-rollout-routing-replay");
  EXPECT_FALSE(plain.config.use_tis);
  EXPECT_FALSE(plain.config.use_rollout_routing_replay);
  EXPECT_THAT(plain.warnings,
              testing::Contains(HasSubstr("--use-tis has no effect with --true-on-policy")));
  const ParsedFlags verified =
      on_policy_with("--use-rollout-routing-replay --rollout-verify-tokens 8");
  EXPECT_FALSE(verified.config.use_rollout_routing_replay);
  EXPECT_THAT(verified.warnings,
              testing::Contains(HasSubstr("--use-rollout-routing-replay has no effect with")))
      << "before an engine is made that would refuse it";
  const ParsedFlags partial = on_policy_with("--use-tis --partial-rollout");
  EXPECT_TRUE(partial.config.use_tis) << "some tokens are of older weights";
}

TEST(OnPolicy, TokensAreVerifiedWhereTheFlagSaysSo) {
  EXPECT_EQ(on_policy_with("").config.verify_tokens(), 0) << "CPUs have one arithmetic";
  const ParsedFlags given = on_policy_with("--rollout-verify-tokens 8");
  EXPECT_EQ(given.config.verify_tokens(), 8);
  EXPECT_EQ(given.config.given_aliases.at("sglang_speculative_algorithm"), "VERIFY")
      << "users' functions count";
  EXPECT_EQ(on_policy_with("--rollout-verify-tokens 0").config.verify_tokens(), 0);
  RunConfig gpu;
  gpu.true_on_policy = true;
  gpu.device = "cuda";
  EXPECT_EQ(gpu.verify_tokens(), 16);
  gpu.true_on_policy = false;
  EXPECT_EQ(gpu.verify_tokens(), 0);
}

TEST(OnPolicy, TokensAreVerifiedOnceAndInOneStep) {
  const auto says = [](const std::string& flags, const std::string& what) {
    EXPECT_THAT([&] { on_policy_with(flags); },
                testing::ThrowsMessage<ConfigError>(HasSubstr(what)))
        << flags;
  };
  says("--rollout-verify-tokens 65", "--rollout-verify-tokens 65: should be between 0 and 64");
  says("--rollout-verify-tokens -1", "--rollout-verify-tokens -1: should be between 0 and 64");
  says("--rollout-verify-tokens 16 --sglang-chunked-prefill-size 16",
       "a step of --sglang-chunked-prefill-size 16 verifies them and the token before");
  says("--rollout-verify-tokens 8 --rollout-drafts suffix",
       "--rollout-verify-tokens 8 and --rollout-drafts suffix: tokens are verified once");
}

TEST(OnPolicy, AGpuThatVerifiesIsTaken) {
  const RunConfig config = on_policy_with("--device cuda").config;
  EXPECT_TRUE(config.true_on_policy);
  EXPECT_EQ(config.verify_tokens(), 16);
}

TEST(OnPolicy, TheOriginalsWordMeansTheSame) {
  EXPECT_TRUE(on_policy_with("--true-on-policy-mode").config.true_on_policy);
}

}  // namespace
}  // namespace slime::config
