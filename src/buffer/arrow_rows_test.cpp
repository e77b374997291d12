#include "buffer/arrow_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "buffer/dataset.h"
#include "core/error.h"
#include "core/json.h"

namespace slime::buffer {
namespace {

using testing::HasSubstr;

/// Seven rows in row groups of three (tests/fixtures/parquet/README.md).
const std::string kRows = SLIME_SOURCE_DIR "/tests/fixtures/parquet/rows.parquet";

class ParquetFile : public testing::Test {
 protected:
  void SetUp() override {
    try {
      require_arrow_library();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("pandas converts"));
      GTEST_SKIP() << "this build has no Arrow library";
    }
  }
};

TEST_F(ParquetFile, GivesEveryTypeAsJson) {
  EXPECT_EQ(count_arrow_rows(kRows, "parquet"), 7);
  std::vector<json::value> rows;
  read_arrow_rows(kRows, "parquet", 0, 7, [&](std::string_view text) {
    rows.push_back(parse_json(text, "row"));
    return true;
  });
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_EQ(rows[2], parse_json(R"({"prompt": [{"role": "user", "content": "2+1? \"\u00e9\"\n"}],
                                    "label": "3", "score": 1.0, "n": 2, "flag": true,
                                    "tags": ["x", "x"], "note": null})",
                                "expected"));
  EXPECT_EQ(rows[1].at("score"), json::value(0.5));
  EXPECT_EQ(rows[1].at("note"), json::value("b\\"));
}

TEST_F(ParquetFile, GivesColumnsThatNobodyAskedForAndKeepsFloatsFloats) {
  std::vector<std::string> rows;
  const auto read = [&](const std::string& name) {
    rows.clear();
    read_arrow_rows(SLIME_SOURCE_DIR "/tests/fixtures/parquet/" + name, "parquet", 0, 9,
                    [&](std::string_view text) {
                      rows.emplace_back(text);
                      return true;
                    });
  };
  read("kinds.parquet");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(
      rows[0],
      R"({"f32":0.10000000149011612,"f64":0.1,"h":0.5,"i":9223372036854775809,)"
      R"("b":{"base64":"/wA="},"lb":{"base64":"/g=="},"fb":{"base64":"//4="},"m":{"a":1},)"
      R"("m2":[[1,"x"]],"d":"1.10","t":"2020-01-01 00:00:00.000000",)"
      R"("nested":[{"x":1.0,"y":[{"base64":"/w=="}]}],"dict":"a","n":null,"sv":"v","bo":true})");
  EXPECT_EQ(rows[1], R"({"f32":1.0,"f64":1e999,"h":1.0,"i":1,"b":"text","lb":"a","fb":"ab","m":{},)"
                     R"("m2":[],"d":null,"t":null,"nested":[],"dict":"b","n":null,"sv":"w",)"
                     R"("bo":false})");
  try {
    read("not_utf8.parquet");
    FAIL() << "a text that is none";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("row 0, column \"s\" (string): a text that is not UTF-8"));
  }
}

TEST_F(ParquetFile, ReadsASliceAcrossRowGroups) {
  std::vector<int64_t> numbers;
  read_arrow_rows(kRows, "parquet", 2, 5, [&](std::string_view text) {
    numbers.push_back(parse_json(text, "row").at("n").as_int64());
    return true;
  });
  EXPECT_EQ(numbers, (std::vector<int64_t>{2, 3, 4}));
}

TEST_F(ParquetFile, IsADataSetLikeAnyOther) {
  DatasetConfig config;
  config.paths = {kRows + "@[-3:]"};
  config.keys.input = "prompt";
  config.keys.label = "label";
  config.apply_chat_template = true;
  const Dataset dataset = Dataset::load(
      config,
      [](const json::array& messages, const json::array&) {
        return std::string(messages.at(0).at("content").as_string());
      },
      [](std::string_view text) { return std::vector<TokenId>(text.begin(), text.end()); });
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.prompt(0).label, json::value("5"));
  EXPECT_THAT(dataset.prompt(2).text, HasSubstr("6+1?"));
}

TEST_F(ParquetFile, ARowThatCannotBeUsedIsNamed) {
  DatasetConfig config;
  config.paths = {kRows};
  config.keys.input = "prompt";
  config.keys.label = "answer";
  try {
    Dataset::load(config, nullptr, nullptr);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rows.parquet, row 0: no field \"answer\" (--label-key)"));
  }
}

TEST_F(ParquetFile, AFileThatIsNoParquetIsNamed) {
  try {
    count_arrow_rows(SLIME_SOURCE_DIR "/tests/fixtures/parquet/README.md", "parquet");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("README.md: "));
  }
}

}  // namespace
}  // namespace slime::buffer
