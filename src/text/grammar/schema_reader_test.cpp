#include "text/grammar/schema_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "text/grammar/grammar_for_tests.h"

namespace slime::text {
namespace {

using testing::HasSubstr;

bool accepts(const char* schema, std::string_view text) {
  return grammar_accepts("json_schema", schema, text);
}
std::string error_of(const char* schema) { return grammar_error("json_schema", schema); }

json::value read(const char* schema) {
  const GrammarLimits limits;
  SchemaUse use;
  return read_schema(parse_json(schema, "schema"), SchemaForm::kJson, "schema", limits, use);
}

TEST(SchemaReader, RefusesKeywordsByNameAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties": {"a": {"not": {}}}})", "#/properties/a/not: not is not supported"},
      {R"({"items": {"if": {}, "then": {}}})", "#/items/if: if is not supported"},
      {R"({"uniqueItems": true})", "#/uniqueItems: uniqueItems is not supported"},
      {R"({"contains": {}})", "#/contains: contains is not supported"},
      {R"({"dependentRequired": {}})", "#/dependentRequired: dependentRequired is not supported"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"minContains": 1}}})", "#/$defs/a/minContains"},
      {R"({"$ref": "https://example.org/a"})", "#/$ref: $ref must point into this schema"},
      {R"({"$ref": "#/$defs/a"})", "#/$ref: nothing is at"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})", "refers to itself"},
      {R"({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
       "refers to itself"},
      {R"({"type": "number", "multipleOf": 0.5})", "#/multipleOf: multipleOf is not supported"},
      {R"({"type": "integer", "multipleOf": 7, "minimum": 1})",
       "#/multipleOf: multipleOf beside a range"},
      {R"({"pattern": "a", "maxLength": 3})", "#/pattern: pattern, format, and minLength"},
      {R"x({"pattern": "a(?=b)"})x", "#/pattern, position 2: lookahead"},
      {R"({"type": "text"})", "#/type: type must be null, boolean"},
      {R"({"type": "string", "maxLength": -1})", "#/maxLength: maxLength must be a whole number"},
      {R"({"enum": []})", "#/enum: enum must be a list of values"},
      {R"({"required": "a"})", "#/required: required must be a list of names"},
      {R"({"properties": {"a/b~": 5}})", "#/properties/a~1b~0: a schema must be an object"},
      {R"({"properties": {"x": {}}, "patternProperties": {"^x": {}}})",
       "patternProperties that match"},
      {R"([1])", "#: a schema must be an object"},
      {R"({"a": 1, "a": 2})", "the key \"a\" twice"},
      {R"({"const": 123456789012345678901234567890})", "more than 64 bits"},
  };
  for (const auto& [schema, error] : cases)
    EXPECT_THAT(error_of(schema), HasSubstr(error)) << schema;
}

TEST(SchemaReader, RefusesWhatNothingFits) {
  for (const char* schema :
       {R"(false)", R"({"type": "integer", "minimum": 5, "maximum": 3})",
        R"({"type": "string", "enum": [1]})",
        R"({"allOf": [{"type": "string"}, {"type": "null"}]})", R"({"minItems": 3, "maxItems": 2})",
        R"({"properties": {"a": false}, "required": ["a"]})", R"({"anyOf": [false, false]})",
        R"({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2})",
        R"({"type": "integer", "minimum": 1, "maximum": 3, "multipleOf": 5})",
        R"({"required": ["b"], "properties": {"a": {}}, "additionalProperties": false})",
        R"({"minLength": 3, "maxLength": 2})"})
    EXPECT_THAT(error_of(schema), HasSubstr("no value fits")) << schema;
  EXPECT_THAT(error_of(R"({"properties": {"next": {"$ref": "#"}}, "required": ["next"]})"),
              HasSubstr("without end"));
  EXPECT_THAT(error_of(R"({"items": {"$ref": "#"}, "minItems": 1})"), HasSubstr("without end"));
}

TEST(SchemaReader, PartsOfAllOfAreMerged) {
  const char* schema = R"({"allOf": [
      {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
      {"properties": {"a": {"maximum": 2}, "b": {"type": "string"}}, "required": ["b"]}]})";
  EXPECT_TRUE(accepts(schema, R"({"a": 1, "b": "x"})"));
  EXPECT_FALSE(accepts(schema, R"({"a": 0, "b": "x"})"));
  EXPECT_FALSE(accepts(schema, R"({"a": 3, "b": "x"})"));
  EXPECT_FALSE(accepts(schema, R"({"a": 1})"));
  EXPECT_FALSE(accepts(schema, "5"));
  // The first part forbids what it does not name.
  const char* closed = R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
      {"properties": {"b": {}}}]})";
  EXPECT_TRUE(accepts(closed, R"({"a": 1})"));
  EXPECT_FALSE(accepts(closed, R"({"b": 1})"));
}

TEST(SchemaReader, RulesBesideAReferenceCount) {
  const char* schema =
      R"({"$ref": "#/$defs/n", "maximum": 9, "$defs": {"n": {"type": "integer"}}})";
  EXPECT_TRUE(accepts(schema, "9"));
  EXPECT_FALSE(accepts(schema, "10"));
  EXPECT_FALSE(accepts(schema, R"("9")"));
}

TEST(SchemaReader, RulesBesideAlternativesAreThoseOfEach) {
  const char* schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  EXPECT_TRUE(accepts(schema, R"({"a": 1})"));
  EXPECT_TRUE(accepts(schema, R"({"b": 1})"));
  EXPECT_TRUE(accepts(schema, R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(accepts(schema, "{}"));
  EXPECT_FALSE(accepts(schema, R"({"a": "x"})"));
  const char* both = R"({"anyOf": [{"type": "integer"}, {"type": "string"}],
      "oneOf": [{"minimum": 5}, {"maxLength": 1}], "type": ["integer", "string"]})";
  EXPECT_TRUE(accepts(both, "5"));
  EXPECT_TRUE(accepts(both, R"("a")"));
}

TEST(SchemaReader, KeywordsImplyTheirTypes) {
  EXPECT_TRUE(accepts(R"({"minimum": 5})", "5.5"));
  EXPECT_FALSE(accepts(R"({"minimum": 5})", "4"));
  EXPECT_FALSE(accepts(R"({"maxLength": 2})", "4"));
  EXPECT_TRUE(accepts(R"({"minimum": 5, "maxLength": 2})", R"("ab")"));
  EXPECT_FALSE(accepts(R"({"minimum": 5, "maxLength": 2})", "4"));
}

TEST(SchemaReader, BoundsOfWholeNumbersAreRounded) {
  const char* schema = R"({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3})";
  EXPECT_FALSE(accepts(schema, "0"));
  EXPECT_TRUE(accepts(schema, "1"));
  EXPECT_TRUE(accepts(schema, "2"));
  EXPECT_FALSE(accepts(schema, "3"));
  EXPECT_FALSE(accepts(R"({"minimum": 1, "exclusiveMinimum": true})", "1")) << "draft 4";
  EXPECT_TRUE(accepts(R"({"type": "number", "multipleOf": 3})", "6"));
  EXPECT_FALSE(accepts(R"({"type": "number", "multipleOf": 3})", "7"));
}

TEST(SchemaReader, BoundedTextsAreJson) {
  const char* schema = R"({"type": "string", "minLength": 1, "maxLength": 3})";
  EXPECT_TRUE(accepts(schema, R"("abc")"));
  EXPECT_FALSE(accepts(schema, R"("a\n\"")")) << "no escapes where characters are counted";
  EXPECT_TRUE(accepts(schema, "\"\xf0\x9f\x9a\x80\xc3\xa9\xe2\x82\xac\""));
  EXPECT_FALSE(accepts(schema, R"("")"));
  EXPECT_FALSE(accepts(schema, R"("abcd")"));
  EXPECT_FALSE(accepts(schema, "\"a\tb\"")) << "a raw control character is no JSON";
  EXPECT_TRUE(accepts(R"({"type": "string", "maxLength": 1000000000})", R"("abc")"));
}

TEST(SchemaReader, ValuesOfEnumsAreThoseThatKeepTheOtherRules) {
  const char* schema =
      R"({"enum": ["a/b", "quite long", 3, 7.5, null, "\u0001\"\\"], "type": ["string", "number"],
      "maxLength": 4, "maximum": 5})";
  EXPECT_TRUE(accepts(schema, R"("a/b")"));
  EXPECT_TRUE(accepts(schema, "3"));
  EXPECT_TRUE(accepts(schema, R"("\u0001\"\\")"));
  EXPECT_FALSE(accepts(schema, "7.5"));
  EXPECT_FALSE(accepts(schema, "null"));
  EXPECT_FALSE(accepts(schema, R"("quite long")"));
  EXPECT_TRUE(accepts(R"({"enum": ["ab", "cd"], "pattern": "b"})", R"("ab")"));
  EXPECT_FALSE(accepts(R"({"enum": ["ab", "cd"], "pattern": "b"})", R"("cd")"));
}

TEST(SchemaReader, OtherMembersNeverTakeANameOfTheSchema) {
  const char* schema =
      R"({"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}})";
  EXPECT_TRUE(accepts(schema, R"({"a": 1, "b": "x"})"));
  EXPECT_TRUE(accepts(schema, R"({"b": "x"})"));
  EXPECT_FALSE(accepts(schema, R"({"a": "x"})"));
  EXPECT_FALSE(accepts(schema, R"({"b": 1})"));
  const char* pattern =
      R"({"properties": {"y": {"type": "integer"}}, "patternProperties": {"^x_": {"type": "string"}}})";
  EXPECT_TRUE(accepts(pattern, R"({"y": 1, "x_a": "b"})"));
  EXPECT_FALSE(accepts(pattern, R"({"y": "b"})"));
  EXPECT_FALSE(accepts(pattern, R"({"z": "b"})"));
}

TEST(SchemaReader, RequiredMembersNeedNotBeDescribed) {
  const char* schema = R"({"type": "object", "required": ["a"]})";
  EXPECT_TRUE(accepts(schema, R"({"a": [1]})"));
  EXPECT_FALSE(accepts(schema, "{}"));
}

TEST(SchemaReader, ObjectsAndListsWithoutRulesAreOpen) {
  EXPECT_TRUE(accepts(R"({"type": "object", "title": "any"})", R"({"a": {"b": [1, null]}})"));
  EXPECT_TRUE(accepts(R"({"type": "object", "minProperties": 1})", R"({"a": 1})"));
  EXPECT_FALSE(accepts(R"({"type": "object", "minProperties": 1})", "{}"));
  EXPECT_TRUE(accepts(R"({"type": "array", "minItems": 2})", R"([1, "a"])"));
  EXPECT_FALSE(accepts(R"({"type": "array", "minItems": 2})", "[1]"));
}

TEST(SchemaReader, ListsMayBeSaidInTheOlderWay) {
  const char* schema =
      R"({"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"}, "minItems": 2})";
  EXPECT_TRUE(accepts(schema, R"([1, "a", null])"));
  EXPECT_FALSE(accepts(schema, R"([1, "a", 2])"));
  EXPECT_FALSE(accepts(schema, R"(["a", 1])"));
}

TEST(SchemaReader, RecursionThroughReferencesEnds) {
  const char* tree =
      R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {
      "type": "array", "items": {"$ref": "#/$defs/node", "minProperties": 1}}}, "required": ["v"]}}, "$ref": "#/$defs/node"})";
  EXPECT_TRUE(accepts(tree, R"({"v": 1, "kids": [{"v": 2}, {"v": 3, "kids": []}]})"));
  EXPECT_FALSE(accepts(tree, R"({"v": 1, "kids": [{}]})"));
  const char* optional =
      R"({"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#"}, {"type": "null"}],
      "default": null}}})";
  EXPECT_TRUE(accepts(optional, R"({"n": {"n": null}})"));
}

TEST(SchemaReader, LimitsAreNamed) {
  std::string deep = "{}";
  for (int i = 0; i < 20; ++i) deep = R"({"items": )" + deep + "}";
  GrammarLimits limits;
  limits.schema_depth = 10;
  EXPECT_THAT(grammar_error("json_schema", deep, limits), HasSubstr("more than 10 deep"));
  EXPECT_EQ(grammar_error("json_schema", deep), "");
  limits.num_values = 2;
  EXPECT_THAT(grammar_error("json_schema", R"({"enum": [1, 2, 3]})", limits),
              HasSubstr("more than 2 values"));
  limits.num_values = 10;
  limits.text_bytes = 8;
  EXPECT_THAT(grammar_error("json_schema", R"({"enum": ["abcd", "efgh"]})", limits),
              HasSubstr("more than 8 bytes"));
  limits.num_properties = 1;
  EXPECT_THAT(grammar_error("json_schema", R"({"properties": {"a": {}, "b": {}}})", limits),
              HasSubstr("more than 1 properties"));
  limits.source_bytes = 3;
  EXPECT_THAT(grammar_error("json_schema", "true", limits), HasSubstr("has 4 bytes, at most 3"));
  // Alternatives of alternatives are multiplied.
  std::string many = R"({"allOf": [)";
  for (int i = 0; i < 12; ++i)
    many += std::string(i > 0 ? "," : "") +
            R"({"anyOf": [{"title": "a"}, {"minimum": 1}, {"maximum": 9}]})";
  EXPECT_THAT(grammar_error("json_schema", many + "]}"),
              HasSubstr("schemas, with those that alternatives"));
}

TEST(SchemaReader, UnknownKeywordsAreAnnotations) {
  EXPECT_EQ(read(R"({"type": "string", "x-order": 3, "format": "colour", "strict": true})"),
            read(R"({"type": "string"})"));
}

}  // namespace
}  // namespace slime::text
