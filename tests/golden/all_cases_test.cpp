// No golden case is silently absent: each file of the specification is a suite of tests, with all of
// its cases. What cannot run yet is skipped by its test, with the reason.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/golden_test.h"

namespace slime::golden {
namespace {

/// As the specification came (docs/spec/algorithms.md): files and cases.
constexpr std::size_t kNumFiles = 40;
constexpr std::size_t kNumCases = 833;

bool is_of_specification(const std::string& file) {
  return !file.starts_with("peer_") && file != "jinja_cases.json";  // made by tools of this project
}

TEST(GoldenFiles, EachCaseOfTheSpecificationIsATest) {
  std::size_t num_files = 0, num_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLIME_SOURCE_DIR "/tests/golden")) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() != ".json" || !is_of_specification(file)) continue;
    const std::size_t in_file = read_json_file(entry.path()).as_array().size();
    const auto found = registered_files().find(file);
    ASSERT_NE(found, registered_files().end()) << file << " is read by no test";
    EXPECT_EQ(found->second, in_file) << file;
    ++num_files;
    num_cases += in_file;
  }
  EXPECT_EQ(num_files, kNumFiles);
  EXPECT_EQ(num_cases, kNumCases);
}

}  // namespace
}  // namespace slime::golden
