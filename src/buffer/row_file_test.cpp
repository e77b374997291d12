#include "buffer/row_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "buffer/arrow_rows.h"
#include "buffer/row_form.h"
#include "core/error.h"
#include "core/json.h"

namespace slime::buffer {
namespace {

using testing::HasSubstr;

const std::string kFolder = SLIME_SOURCE_DIR "/tests/fixtures/rows/";

std::string written(const std::string& name, const std::string& content) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

std::vector<json::value> rows_of(const std::string& path) {
  std::vector<json::value> rows;
  for (const SlicedPath& file : open_paths({path}, "--prompt-data")) {
    read_rows(file, [&](RowText row) {
      rows.push_back(parse_json(row.json, place_of(file.path, row.number)));
      return true;
    });
  }
  return rows;
}

std::string refusal_of(const std::string& path) {
  try {
    rows_of(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

bool has_arrow() {
  try {
    require_arrow_library();
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

void expect_the_four_rows(const std::string& name) {
  const std::vector<json::value> rows = rows_of(kFolder + name);
  ASSERT_EQ(rows.size(), 4U) << name;
  for (int i = 0; i < 4; ++i) {
    const std::string prompt =
        std::to_string(i) + "+1?\nSay \"" + std::to_string(i + 1) + "\", or \xc3\xa9";
    EXPECT_EQ(rows[static_cast<std::size_t>(i)].at("prompt"), json::value(prompt)) << name;
    EXPECT_EQ(rows[static_cast<std::size_t>(i)].at("label"), json::value(std::to_string(i + 1)));
  }
  const std::vector<json::value> some = rows_of(kFolder + name + "@[1:-1]");
  ASSERT_EQ(some.size(), 2U) << name;
  EXPECT_EQ(some[0], rows[1]);
}

TEST(RowFile, JsonMayBeAListOrObjectsOneAfterTheOther) {
  expect_the_four_rows("list.json");
  expect_the_four_rows("objects.json");
}

TEST(RowFile, OtherFormsAreReadThroughArrow) {
  if (!has_arrow()) GTEST_SKIP() << "this build has no Arrow library";
  for (const char* name : {"rows.csv", "rows.csv.gz", "rows.jsonl.gz", "rows.jsonl.zst",
                           "list.json.zst", "file.arrow", "stream.arrow"})
    expect_the_four_rows(name);
}

TEST(RowFile, ColumnsThatNobodyAskedForAreNoHindrance) {
  if (!has_arrow()) GTEST_SKIP() << "this build has no Arrow library";
  for (const char* name : {"file.arrow", "stream.arrow"}) {
    const json::value row = rows_of(kFolder + name).at(0);
    EXPECT_EQ(row.at("image"),
              parse_json(R"({"bytes": {"base64": "iVBOR/8="}, "path": null})", "x"));
    EXPECT_EQ(row.at("map"), parse_json(R"({"a": 1})", "x"));
    EXPECT_EQ(row.at("nested"), parse_json("[[1], []]", "x"));
    EXPECT_EQ(row.at("day"), json::value("1970-01-01"));
  }
}

TEST(RowFile, FieldsOfCsvAreTexts) {
  if (!has_arrow()) GTEST_SKIP() << "this build has no Arrow library";
  const auto rows = rows_of(written("texts.csv", "a,b,c\n007,2020-01-02,\nNA,true,1e3\n"));
  EXPECT_EQ(rows.at(0), parse_json(R"({"a": "007", "b": "2020-01-02", "c": ""})", "x"));
  EXPECT_EQ(rows.at(1), parse_json(R"({"a": "NA", "b": "true", "c": "1e3"})", "x"));
  EXPECT_THAT(refusal_of(written("ragged.csv", "a,b\n1,2,3\n")), HasSubstr("Expected 2 columns"));
  EXPECT_THAT(refusal_of(written("latin1.csv", "a\n\xe9\n")), HasSubstr("UTF8"));
}

TEST(RowFile, DamageIsRefusedWithTheFile) {
  EXPECT_THAT(refusal_of(written("open.json", R"([{"a": 1}, {"a": [)")),
              HasSubstr("open.json, row 1: the file ends within a value"));
  EXPECT_THAT(refusal_of(written("endless.json", R"([{"a": 1})")),
              HasSubstr("the list does not end"));
  EXPECT_THAT(refusal_of(written("more.json", R"([{"a": 1}] {"b": 2})")),
              HasSubstr("something follows"));
  EXPECT_THAT(refusal_of(written("gap.json", R"([{"a": 1} {"b": 2}])")),
              HasSubstr("no comma between"));
  EXPECT_THAT(refusal_of(written("comma.json", R"([{"a": 1},])")),
              HasSubstr("a comma before the end"));
  EXPECT_THAT(refusal_of(written("text.json", "\"a\"")), HasSubstr("should be a list of objects"));
  EXPECT_THAT(refusal_of(written("bare.json", R"({"a": 1} 2)")), HasSubstr("should be an object"));
  EXPECT_TRUE(rows_of(written("none.json", " [ ] ")).empty());
  EXPECT_EQ(rows_of(written("deep.json", R"([{"a": "]},\"{", "b": [[{}]]}])")).size(), 1U);
  if (!has_arrow()) return;
  for (const char* name : {"x.jsonl.gz", "x.csv.zst", "x.arrow", "x.parquet"})
    EXPECT_THAT(refusal_of(written(name, "no such form at all")), HasSubstr(name));
}

TEST(RowFile, TheNameSaysTheForm) {
  EXPECT_EQ(form_of("a.b/x.csv.zst")->arrow_name(), "csv.zst");
  EXPECT_EQ(form_of("x.jsonl.gz")->packing, "gz");
  EXPECT_STREQ(form_of("x.jsonl.gz")->unit(), "line");
  EXPECT_STREQ(form_of("x.json")->unit(), "row");
  for (const char* name : {"x", "x.gz", "x.parquet.gz", "x.jsonl.gz.zst", "x.txt", "jsonl"})
    EXPECT_FALSE(form_of(name)) << name;
}

}  // namespace
}  // namespace slime::buffer
