// The flags that users of the original type: every one has a row, and their scripts' argument lists
// are understood.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "config/flag_table.h"
#include "config/parse_flags.h"

namespace slime::config {
namespace {

const std::string kFolder = SLIME_SOURCE_DIR "/tests/fixtures/flags/";

/// Name and number of shell scripts that it occurs in.
std::vector<std::pair<std::string, int>> census() {
  std::ifstream file(kFolder + "census.txt");
  std::vector<std::pair<std::string, int>> flags;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    auto& [name, count] = flags.emplace_back();
    words >> name >> count;
  }
  return flags;
}

std::map<std::string, std::vector<std::string>> launch_scripts() {
  std::ifstream file(kFolder + "launch_scripts.txt");
  std::map<std::string, std::vector<std::string>> scripts;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (line.starts_with('[') && line.ends_with(']')) {
      name = line.substr(1, line.size() - 2);
      continue;
    }
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with("tests/")) word = SLIME_SOURCE_DIR "/" + word;
      scripts[name].push_back(word);
    }
  }
  return scripts;
}

TEST(FlagCensus, EveryFlagHasARow) {
  const auto flags = census();
  EXPECT_EQ(flags.size(), 396U);
  for (const auto& [name, count] : flags) EXPECT_NE(find_flag(name), nullptr) << name;
}

TEST(FlagCensus, EveryFlagOfAScriptIsInAnArgumentList) {
  std::map<std::string, int> seen;
  for (const auto& [name, words] : launch_scripts()) {
    for (const std::string& word : words) ++seen[word];
  }
  for (const auto& [name, count] : census()) {
    EXPECT_TRUE(count == 0 || seen.contains(name)) << name;
  }
}

TEST(FlagCensus, ArgumentListsOfLaunchScriptsParse) {
  const auto scripts = launch_scripts();
  EXPECT_GE(scripts.size(), 6U);
  for (const auto& [name, words] : scripts) {
    SCOPED_TRACE(name);
    const ParsedFlags parsed = parse_flags(words);
    EXPECT_EQ(parsed.unknown.size(), name == "distillation" ? 1U : 0U)
        << json::serialize(parsed.unknown);
    for (const std::string& problem : parsed.problems) {
      // What is refused has a row that says what to use; a value of the wrong type would be a
      // mistake of ours.
      const Flag* flag = find_flag(problem.substr(0, problem.find(':')));
      ASSERT_NE(flag, nullptr) << problem;
      EXPECT_EQ(flag->status, FlagStatus::kRefused) << problem;
    }
  }
}

TEST(FlagCensus, AFileOfTheUsersOwnKeysWinsOverTheCommandLine) {
  const ParsedFlags parsed = parse_flags(launch_scripts().at("distillation"));
  EXPECT_EQ(parsed.config.rs_veto_threshold, 1e-4);
  EXPECT_TRUE(parsed.config.tis_batch_normalize);
  EXPECT_EQ(parsed.unknown.at("my_own_key"), json::value(7));
  EXPECT_TRUE(parsed.config.uses_mis());
}

}  // namespace
}  // namespace slime::config
