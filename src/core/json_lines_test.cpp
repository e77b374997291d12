#include "core/json_lines.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/error.h"

namespace slime {
namespace {

std::string error_of(JsonLines& input) {
  try {
    while (input.next()) {
    }
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonLines, BlankLinesAreSkippedAndTheLastLineNeedsNoNewline) {
  std::istringstream text("{\"a\": 1}\n\n  \r\n{\"a\": 2}");
  JsonLines input(text, "in");
  EXPECT_EQ(input.next()->at("a"), 1);
  EXPECT_EQ(input.next()->at("a"), 2);
  EXPECT_EQ(input.where(), "in, line 4");
  EXPECT_FALSE(input.next().has_value());
}

TEST(JsonLines, AByteOrderMarkIsNoPartOfTheFirstLine) {
  std::istringstream text("\xef\xbb\xbf{\"a\": 1}\n");
  JsonLines input(text, "in");
  EXPECT_EQ(input.next()->at("a"), 1);
  std::istringstream later("{\"a\": 1}\n\xef\xbb\xbf{\"a\": 1}\n");
  JsonLines second(later, "in");
  EXPECT_NE(error_of(second).find("in, line 2: not valid JSON"), std::string::npos);
}

TEST(JsonLines, AKeyThatIsThereTwiceIsAnError) {
  std::istringstream text("{\"a\": 1}\n{\"b\": {\"a\": 1, \"a\": 2}}\n");
  JsonLines input(text, "in");
  EXPECT_EQ(error_of(input), "in, line 2: the key \"a\" is there twice");
}

TEST(JsonLines, ADirectoryIsNoFile) {
  const std::string folder = testing::TempDir();
  try {
    JsonLines input(folder);
    ADD_FAILURE() << "opened";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              folder + ": is a directory; a file of JSON lines is needed");
  }
}

TEST(JsonLines, AMalformedLineIsNamedByItsNumber) {
  std::istringstream text("{\"a\": 1}\n{\"a\": \n");
  JsonLines input(text, "in");
  EXPECT_NE(error_of(input).find("in, line 2"), std::string::npos);
}

TEST(JsonLines, ALineThatIsNoObjectIsAnError) {
  std::istringstream text("[1]\n");
  JsonLines input(text, "in");
  EXPECT_EQ(error_of(input), "in, line 1: not a JSON object");
}

TEST(JsonLines, ALineAboveTheLimitIsRefused) {
  std::istringstream text("{\"a\": \"0123456789\"}\n");
  JsonLines input(text, "in", 8);
  EXPECT_EQ(error_of(input), "in, line 1: longer than the limit of 8 bytes");
}

constexpr int64_t kMostIds = int64_t{1} << 31;

TEST(JsonLines, IdsMustBeSmallNonNegativeIntegers) {
  for (const char* bad : {"{}", "{\"ids\": 3}", "{\"ids\": [-1]}", "{\"ids\": [1.5]}",
                          "{\"ids\": [4294967296]}", "{\"ids\": [\"1\"]}"}) {
    std::istringstream text(bad);
    JsonLines input(text, "in");
    const auto object = input.next();
    EXPECT_THROW(input.fields(*object).token_ids("ids", kMostIds), ConfigError) << bad;
  }
  std::istringstream text("{\"ids\": [0, 2147483647]}");
  JsonLines input(text, "in");
  const auto object = input.next();
  EXPECT_EQ(input.fields(*object).token_ids("ids", kMostIds),
            (std::vector<int32_t>{0, 2147483647}));
}

TEST(JsonLines, AMissingFileIsAnError) {
  EXPECT_THROW(JsonLines("/no/such/file.jsonl"), ConfigError);
}

}  // namespace
}  // namespace slime
