#include "config/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace slime::config {
namespace {

json::value yaml_value(const std::string& yaml) {
  const auto path = std::filesystem::path(testing::TempDir()) / "yaml_test.yaml";
  std::ofstream(path) << yaml;
  return read_yaml_file(path.string(), "--config");
}

std::string yaml_refusal(const std::string& yaml) {
  try {
    yaml_value(yaml);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// A map of `num_lists` lists, each of nine times the one before it; the first is nine words.
std::string lists_of_aliases(int num_lists) {
  std::string yaml = "a0: &a0 word\n";
  for (int i = 1; i <= num_lists; ++i) {
    const std::string alias = "*a" + std::to_string(i - 1);
    yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + alias;
    for (int k = 1; k < 9; ++k) yaml += ", " + alias;
    yaml += "]\n";
  }
  return yaml;
}

TEST(Yaml, AnAliasIsACopyOfWhatItNames) {
  const json::value map = yaml_value("a: &x {lr: 1}\nb: [*x, *x]\n");
  EXPECT_EQ(json_text(map), R"({"a":{"lr":1},"b":[{"lr":1},{"lr":1}]})");
  EXPECT_EQ(yaml_value(lists_of_aliases(3)).at("a3").as_array().size(), 9U);
}

TEST(Yaml, AliasesThatMultiplyAreRefused) {
  const std::string says = yaml_refusal(lists_of_aliases(7));  // five million words
  EXPECT_THAT(says, testing::StartsWith("--config "));
  EXPECT_THAT(says, testing::HasSubstr("more than 1000000 nodes"));
}

TEST(Yaml, CopiesOfALongTextAreBoundedToo) {
  std::string yaml = "a: &a " + std::string(1'000'000, 'x') + "\nb: [*a";
  for (int i = 0; i < 100; ++i) yaml += ", *a";
  EXPECT_THAT(yaml_refusal(yaml + "]\n"), testing::HasSubstr("more than 1000000 nodes"));
}

}  // namespace
}  // namespace slime::config
