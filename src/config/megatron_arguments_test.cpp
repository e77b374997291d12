#include "config/megatron_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "config/flag_table.h"
#include "config/foreign_flags.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

namespace slime::config {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Judged {
  std::string refusal;
  std::vector<std::string> notes;
};

Judged judged(const std::string& line) {
  std::istringstream stream(
      "--hf-checkpoint /tmp --prompt-data x.jsonl --rollout-batch-size 4 --n-samples-per-prompt 8 "
      "--num-rollout 3 --rollout-max-response-len 16 --rm-type math " +
      line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  ParsedFlags parsed = parse_flags(words);
  try {
    complete_and_validate(parsed);
  } catch (const ConfigError& error) {
    return {.refusal = error.what(), .notes = parsed.warnings};
  }
  return {.refusal = "", .notes = parsed.warnings};
}

TEST(MegatronArguments, AreNoRowsOfTheTableAndHaveNoOtherAnswer) {
  for (const FlagRow& row : flag_table()) EXPECT_FALSE(megatron_argument(row.name)) << row.name;
  for (const char* name : {"--train-iters", "--data-path", "--batch-size", "--wandb-entity"}) {
    EXPECT_FALSE(megatron_argument(name)) << name;
    EXPECT_TRUE(our_words_for(name)) << name;
  }
}

TEST(MegatronArguments, WithoutEffectSayWhy) {
  const Judged scaled = judged("--hysteresis 2 --override-opt_param-scheduler");
  EXPECT_EQ(scaled.refusal, "");
  EXPECT_THAT(
      scaled.notes,
      Contains("--hysteresis has no effect: the loss is not scaled: gradients are float32"));
  EXPECT_THAT(scaled.notes, Contains("--override-opt-param-scheduler has no effect: the flags say "
                                     "the schedule, the checkpoint its position"));
}

TEST(MegatronArguments, ThatWouldTrainSomethingElseAreRefusedByName) {
  EXPECT_THAT(judged("--moe-expert-capacity-factor 1.5").refusal,
              HasSubstr("--moe-expert-capacity-factor: leave it out: every token visits"));
  EXPECT_THAT(judged("--rampup-batch-size 16 8 300000").refusal,
              HasSubstr("--rampup-batch-size: use --global-batch-size, which is constant"));
  const Judged allowed = judged("--qk-clip --allow-unknown-flags");
  EXPECT_EQ(allowed.refusal, "");
  EXPECT_THAT(allowed.notes, Contains(HasSubstr("--qk-clip has no effect")));
}

TEST(MegatronArguments, TakeAsManyValuesAsTheyDoThere) {
  EXPECT_THAT(judged("--hysteresis").refusal, HasSubstr("--hysteresis: takes one value"));
  EXPECT_THAT(judged("--manual-gc 3").refusal, HasSubstr("--manual-gc: takes no value"));
  EXPECT_THAT(judged("--offload-modules").refusal, HasSubstr("takes one value or more"));
}

TEST(MegatronArguments, AreFoundBehindAMisspelling) {
  EXPECT_THAT(judged("--histeresis 2").refusal,
              HasSubstr("unknown flag --histeresis; did you mean Megatron-LM's --hysteresis?"));
}

}  // namespace
}  // namespace slime::config
