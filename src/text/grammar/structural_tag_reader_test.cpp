#include "text/grammar/structural_tag_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/grammar/grammar_for_tests.h"

namespace slime::text {
namespace {

using testing::HasSubstr;

std::string whole_tag(const std::string& format) {
  return R"({"type": "structural_tag", "format": )" + format + "}";
}

TEST(StructuralTagReader, RefusesByNameAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "any"})", "#/format/type: \"any\" is no format; there are const_string"},
      {R"({"value": "a"})", "#/format/type: a missing type is no format"},
      {R"({"type": "const_string", "valu": "a"})",
       "#/format/valu: const_string has no such field; it has value"},
      {R"({"type": "const_string"})", "#/format/value: const_string must have it"},
      {R"x({"type": "sequence", "elements": [{"type": "regex", "pattern": "a(?=b)"}]})x",
       "#/format/elements/0/pattern, position 2: lookahead"},
      {R"({"type": "grammar", "grammar": "root ::= x"})",
       "#/format/grammar, line 1, column 10: rule x"},
      {R"({"type": "grammar", "grammar": "start: x", "syntax": "lark"})",
       "#/format/syntax: syntax must be"},
      {R"({"type": "tag", "begin": "a", "content": {"type": "json_schema", "json_schema": {"not": {}}}, "end": "b"})",
       "#/format/content/json_schema, #/not: not is not supported"},
      {R"({"type": "json_schema", "json_schema": {}, "style": "yaml"})",
       "style must be one of json, qwen_xml"},
      {R"({"type": "repeat", "min": 0, "max": 100001, "content": {"type": "any_text"}})",
       "counts in counts"},
      {R"({"type": "sequence", "elements": []})", "#/format/elements: must not be empty"},
      {R"({"type": "triggered_tags", "triggers": [""], "tags": []})",
       "#/format/triggers: must be a text, not empty"},
  };
  for (const auto& [format, error] : cases)
    EXPECT_THAT(grammar_error("structural_tag", whole_tag(format)), HasSubstr(error)) << format;
  EXPECT_THAT(grammar_error("structural_tag", "[]"), HasSubstr("#: must be an object"));
  EXPECT_THAT(grammar_error("structural_tag", R"({"type": "structural_tag"})"),
              HasSubstr("has no \"format\""));
}

TEST(StructuralTagReader, TheOlderFormIsRead) {
  const char* tag = R"({"type": "structural_tag", "triggers": ["<f"], "structures": [
      {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}]})";
  EXPECT_TRUE(grammar_accepts("structural_tag", tag, "text <f=a>12</f> more"));
  EXPECT_FALSE(grammar_accepts("structural_tag", tag, "text <f=a>x</f>"));
  EXPECT_FALSE(grammar_accepts("structural_tag", tag, "<f=b>12</f>"));
}

TEST(StructuralTagReader, ExpressionsAndGrammarsStandAmongOtherFormats) {
  const std::string tag =
      whole_tag(R"({"type": "sequence", "elements": [{"type": "const_string", "value": "n="},
      {"type": "regex", "pattern": "[0-9]{2}"}, {"type": "optional", "content": {"type": "grammar",
      "grammar": "root ::= \"a\" root | \"b\""}}]})");
  EXPECT_TRUE(grammar_accepts("structural_tag", tag, "n=42"));
  EXPECT_TRUE(grammar_accepts("structural_tag", tag, "n=42aab"));
  EXPECT_FALSE(grammar_accepts("structural_tag", tag, "n=4"));
  EXPECT_FALSE(grammar_accepts("structural_tag", tag, "n=42aa"));
}

TEST(StructuralTagReader, TextsOfParametersAreBareAndThoseInsideAreJson) {
  const std::string tag =
      whole_tag(R"({"type": "json_schema", "style": "qwen_xml", "json_schema": {"type": "object",
      "properties": {"code": {"type": "string", "pattern": "^a\"b$"}, "list": {"type": "array", "items": {
      "type": "string", "maxLength": 2}}}, "required": ["code", "list"]}})");
  const std::string code = "<parameter=code>\na\"b\n</parameter>\n";
  EXPECT_TRUE(grammar_accepts("structural_tag", tag,
                              code + "<parameter=list>\n[\"x\", \"yz\"]\n</parameter>"));
  EXPECT_FALSE(
      grammar_accepts("structural_tag", tag, code + "<parameter=list>\n[\"xyz\"]\n</parameter>"));
  EXPECT_FALSE(grammar_accepts(
      "structural_tag", tag,
      "<parameter=code>\na\\\"b\n</parameter>\n<parameter=list>\n[]\n</parameter>"));
}

TEST(StructuralTagReader, TextsWithCountsAreBoundInsideOfTags) {
  for (const char* style : {"json", "qwen_xml"}) {
    const std::string tag = fmt::format(
        R"({{"type": "structural_tag", "format": {{"type": "triggered_tags", "triggers": ["<call>"], "tags": [
        {{"type": "tag", "begin": "<call>", "end": "</call>", "content": {{"type": "json_schema", "style": "{}",
        "json_schema": {{"type": "object", "properties": {{"deep": {{"type": "object", "properties":
        {{"city": {{"type": "string", "pattern": "^[a-z ]{{1,4}}$"}}, "note": {{"type": "string", "maxLength": 2}}}},
        "required": ["city", "note"]}}}}, "required": ["deep"]}}}}}}]}}}})",
        style);
    const bool is_json = std::string_view(style) == "json";
    const auto accepts = [&](const std::string& deep) {
      const std::string inside =
          is_json ? R"({"deep": )" + deep + "}" : "<parameter=deep>" + deep + "</parameter>";
      return grammar_accepts("structural_tag", tag, "Text.<call>" + inside + "</call> More.");
    };
    EXPECT_TRUE(accepts(R"({"city": "rome", "note": "ab"})")) << style;
    EXPECT_TRUE(accepts(R"({"city": "a", "note": ""})")) << style;
    EXPECT_FALSE(accepts(R"({"city": "milan", "note": "ab"})")) << style;
    EXPECT_FALSE(accepts(R"({"city": "", "note": "ab"})")) << style;
    EXPECT_FALSE(accepts(R"({"city": "rome", "note": "abc"})")) << style;
    EXPECT_FALSE(accepts(R"({"city": "Rome", "note": "ab"})")) << style;
  }
}

}  // namespace
}  // namespace slime::text
