#include "help/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace slime::help {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const Manual& manual() {
  static const Manual kManual = run_manual("slime train", "trains.", {});
  return kManual;
}

std::string said(const std::vector<std::string>& words, int width = 80) {
  return answer(manual(), words, {.width = width}).text;
}

TEST(RunFlags, EveryFlagHasATopicAndEveryTopicNamesFlags) {
  for (const Option& option : manual().options) {
    EXPECT_TRUE(std::ranges::any_of(manual().topics, [&](const Topic& topic) {
      return std::ranges::find(topic.names, option.names[0]) != topic.names.end();
    })) << option.names[0];
  }
  for (const FlagTopic& topic : flag_topics())
    for (const std::string_view flag : topic.flags)
      EXPECT_NE(manual().find(flag), nullptr) << topic.word << ": " << flag;
  for (const Section& section : first_flags())
    for (const std::string& flag : section.names)
      EXPECT_NE(manual().find(flag), nullptr) << section.title << ": " << flag;
}

TEST(RunFlags, PagesAreThere) {
  for (const FlagTopic& topic : flag_topics()) {
    if (topic.page.empty()) continue;
    EXPECT_TRUE(std::ifstream(std::string(topic.page)).good()) << topic.page;
  }
}

TEST(RunFlags, TextsFitTheTerminal) {
  for (const int width : {60, 80, 120}) {
    for (const Topic& topic : manual().topics) {
      std::istringstream lines(said({topic.word}, width) + said({}, width));
      for (std::string line; std::getline(lines, line);) {
        const std::size_t word = line.find_first_not_of(' ');
        if (word == line.npos || line.find(' ', word) == line.npos) continue;  // one long word
        EXPECT_LE(line.size(), width) << line;
      }
    }
  }
}

TEST(RunFlags, TheFirstPageIsShort) {
  const std::string text = said({});
  EXPECT_LT(std::ranges::count(text, '\n'), 70);
}

TEST(RunFlags, AFlagIsToldWithItsRulesAndOtherNames) {
  EXPECT_THAT(said({"--micro-batch-size"}), HasSubstr("Rules: should be at least 1."));
  EXPECT_THAT(said({"--use-opd"}), HasSubstr("needs --opd-type"));
  EXPECT_THAT(said({"lr"}), AllOf(HasSubstr("peak learning rate"), HasSubstr("Default: 1e-06."),
                                  HasSubstr("--help optimizer")));
  EXPECT_THAT(said({"gamma"}), HasSubstr("It counts with:"));
}

TEST(RunFlags, AnothersNameIsAnsweredWithOurs) {
  EXPECT_THAT(said({"learning_rate"}), HasSubstr("here it is --lr"));
}

TEST(RunFlags, RulesNameTheWordThatTheyAreAbout) {
  const config::FlagRow* flag = config::find_flag("--opd-type");
  ASSERT_NE(flag, nullptr);
  EXPECT_THAT(rules_of(*flag), Contains(HasSubstr("needs --use-opd")));
}

}  // namespace
}  // namespace slime::help
