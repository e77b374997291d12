#include "cli/commands.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "help/manual.h"

namespace slime::cli {
namespace {

constexpr int kWidth = 80;

void expect_fits(const std::string& text, const std::string& whose) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t word = line.find_first_not_of(' ');
    if (word == line.npos || line.find(' ', word) == line.npos) continue;  // one long word
    EXPECT_LE(line.size(), kWidth) << whose << ": " << line;
  }
}

TEST(Commands, NamesDifferAndTheirListFitsATerminal) {
  std::set<std::string> names;
  for (const Command& command : commands())
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
  expect_fits(help::list_of_verbs(verbs(), {.width = kWidth}), "slime help");
  expect_fits(help::front_page(verbs(), {.width = kWidth}), "slime");
}

TEST(Commands, HelpOfEachFitsATerminalAndSaysWhatEachOptionIs) {
  for (const Command& command : commands()) {
    const help::Manual manual = manual_of(command);
    EXPECT_FALSE(manual.summary.empty()) << command.name;
    expect_fits(help::answer(manual, {}, {.width = kWidth}).text, command.name);
    for (const help::Option& option : manual.options) {
      ASSERT_FALSE(option.names.empty()) << command.name;
      EXPECT_FALSE(option.meaning.empty()) << command.name << " " << option.names[0];
    }
  }
}

}  // namespace
}  // namespace slime::cli
