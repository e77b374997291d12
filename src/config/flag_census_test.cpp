// The flags that users of the original type: every one has a row, and their scripts' argument lists
// pass the whole validation, but for what a list here names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "config/flag_table.h"
#include "config/parse_flags.h"
#include "config/validate.h"
#include "core/error.h"

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

/// The paths of the lists, made in a folder of their own: data sets of one row, an evaluation file
/// of one data set, empty directories.
class Paths final {
 public:
  Paths() { std::filesystem::remove_all(root_); }
  Paths(const Paths&) = delete;
  Paths& operator=(const Paths&) = delete;
  ~Paths() { std::filesystem::remove_all(root_); }

  std::vector<std::string> made_for(const std::vector<std::string>& words) const {
    std::vector<std::string> substituted;
    for (const std::string& word : words) substituted.push_back(made_for(word));
    return substituted;
  }

 private:
  std::string made_for(const std::string& word) const {
    const std::string path = word.substr(0, word.find("@["));
    const std::string kind = std::filesystem::path(path).extension();
    const bool is_file = kind == ".jsonl" || kind == ".parquet" || kind == ".yaml";
    const bool is_path = is_file || path.starts_with('/') || path.starts_with("./") ||
                         path.starts_with("../") || path.ends_with('/');
    if (word.starts_with(SLIME_SOURCE_DIR) || !is_path) return word;
    const bool is_output = path.find('{') != std::string::npos;  // {rollout_id}.pt
    const std::filesystem::path place = (root_ / ("./" + path)).lexically_normal();
    EXPECT_TRUE(place.string().starts_with(root_.string())) << word << " leads out of the folder";
    if (is_file) {
      std::filesystem::create_directories(place.parent_path());
      std::ofstream(place) << (kind == ".yaml"
                                   ? "eval: {datasets: [{name: aime, path: aime.jsonl}]}"
                                   : R"({"prompt": "1+1=", "label": "2"})");
    } else if (is_output) {
      std::filesystem::create_directories(place.parent_path());
    } else {
      std::filesystem::create_directories(place);  // "/root/Qwen3-1.7B" too
    }
    return place.string() + word.substr(path.size());
  }

  std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / ("flag_census_" + std::to_string(::getpid()));
};

using Names = std::set<std::string>;

/// The flags that the messages begin with, one message a line.
Names flags_of(const std::string& messages) {
  Names names;
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find_first_of(": "));
    EXPECT_NE(find_flag(name), nullptr) << "the message names no flag: " << line;
    names.insert(name);
  }
  return names;
}

/// List -> the flags that `slime train` refuses it for; lists that it takes are not here.
std::map<std::string, Names> refused_lists() {
  const Paths paths;
  std::map<std::string, Names> refused;
  for (const auto& [list, words] : launch_scripts()) {
    ParsedFlags flags = parse_flags(paths.made_for(words));
    try {
      complete_and_validate(flags);
    } catch (const ConfigError& error) {
      refused[list] = flags_of(error.what());
    }
  }
  return refused;
}

/// What the original runs and we do not, yet. It only ever gets shorter: what works from now on has
/// to be taken off, and what worked before never comes here.
const std::map<std::string, Names> kRefused = {
    {"qwen3-4b", {}},
    {"moe-with-latent-attention", {}},
    {"linear-attention-and-gates",
     {"--multimodal-keys", "--fp8-format", "--fp8-recipe", "--rollout-max-response-len"}},
    {"disaggregated-and-external", {"--sglang-config"}},
};

Names without(const Names& names, const Names& others) {
  Names rest;
  std::ranges::set_difference(names, others, std::inserter(rest, rest.end()));
  return rest;
}

TEST(FlagCensus, LaunchListsAreTakenWithWhatIsNotOnTheListOfRefusals) {
  auto refused = refused_lists();
  auto listed = kRefused;
  for (const auto& [list, words] : launch_scripts()) {
    EXPECT_THAT(without(refused[list], listed[list]), ::testing::IsEmpty())
        << list << " is refused for what is not on the list";
    EXPECT_THAT(without(listed[list], refused[list]), ::testing::IsEmpty())
        << list << " works with this: take it off the list";
  }
  EXPECT_EQ(listed.size(), launch_scripts().size()) << "the list names a launch list that is none";
}

TEST(FlagCensus, LaunchListsHaveNoUnknownFlags) {
  for (const auto& [list, words] : launch_scripts()) {
    const ParsedFlags parsed = parse_flags(words);
    EXPECT_EQ(parsed.unknown_flags.size(), list == "distillation" ? 1U : 0U) << list;
    EXPECT_EQ(parsed.unknown.size(), list == "distillation" ? 1U : 0U) << json_text(parsed.unknown);
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
