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

std::vector<std::string> problems_of(const std::string& more) {
  std::istringstream stream("--hf-checkpoint /tmp --environment gym:my_game:make " + more);
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

}  // namespace
}  // namespace slime::config
