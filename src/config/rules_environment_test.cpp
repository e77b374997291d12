// What --environment cannot go with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/rules.h"

namespace slime::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> problems_of(const std::string& more,
                                     const std::string& environment = "gym:my_game:make") {
  std::istringstream stream("--hf-checkpoint /tmp --environment " + environment + " " + more);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  Problems problems({});
  check_environment(parse_flags(words), problems);
  return problems.messages();
}

TEST(RulesOfEnvironments, WhatItReplacesIsRefusedByName) {
  EXPECT_THAT(problems_of("--rollout-batch-size 4"), IsEmpty());
  EXPECT_THAT(
      problems_of("--prompt-data a.jsonl --rm-type math --custom-generate-function-path a.py"),
      ElementsAre(HasSubstr("--environment gym:my_game:make and --prompt-data: "),
                  HasSubstr(" and --rm-type: the environment scores"),
                  HasSubstr(" and --custom-generate-function-path: ")));
}

TEST(RulesOfEnvironments, ItsSettingsAreAnObjectAndRowsAreNotTrained) {
  EXPECT_THAT(problems_of("--environment-args [1]"),
              ElementsAre(HasSubstr("--environment-args [1]: should be a JSON object")));
  EXPECT_THAT(problems_of("--loss-type sft_loss --rollout-function-path "
                          "slime.rollout.sft_rollout.generate_rollout"),
              ElementsAre(HasSubstr("and --rollout-function-path"),
                          HasSubstr("rows are trained as they are")));
}

TEST(RulesOfEnvironments, TracesOfVerifiersKeepNoRecordsOfTheSampler) {
  const std::string all = "--rollout-top-p 0.9 --use-score-centering --use-rollout-routing-replay";
  EXPECT_THAT(problems_of(all, "verifiers:gsm8k"),
              ElementsAre(HasSubstr("--environment verifiers:gsm8k and --rollout-top-p 0.9: "),
                          HasSubstr(" and --use-score-centering: "),
                          HasSubstr(" and --use-rollout-routing-replay: ")));
  EXPECT_THAT(problems_of("--rollout-top-p 1", "verifiers:gsm8k"), IsEmpty());
  EXPECT_THAT(problems_of("--rollout-top-p 0.9"), IsEmpty());
}

}  // namespace
}  // namespace slime::config
