/// The readers of arguments, one by one.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/json.h"
#include "text/messages/json_scanner.h"
#include "text/messages/python_calls.h"
#include "text/messages/tool_schemas.h"

namespace slime::text {
namespace {

/// Bytes of the value, and whether it is JSON: "7 json".
std::string scanned(std::string_view text) {
  JsonScanner scanner;
  std::size_t length = 0;
  for (const char byte : text) {
    const auto step = scanner.step(byte);
    if (step == JsonScanner::Step::kBefore) break;
    ++length;
    if (step == JsonScanner::Step::kLast) break;
  }
  return std::to_string(length) + (scanner.is_valid() && scanner.is_whole() ? " json" : " no json");
}

TEST(JsonScanner, FindsTheEndOfAValueAndWhetherItIsJson) {
  EXPECT_EQ(scanned("{\"a\": [1, -2.5e+3, null]}x"), "25 json");
  EXPECT_EQ(scanned("\"a\\\"\\u00e9\"}"), "11 json");
  EXPECT_EQ(scanned("12,"), "2 json");
  EXPECT_EQ(scanned("{\"a\": 1,}x"), "9 no json");
  EXPECT_EQ(scanned("{a: \"}\"}x"), "8 no json");
  EXPECT_EQ(scanned("{\"a\": \"\n\"}"), "10 no json");
  for (const char* number : {"01", "1.", "-", "1e", ".5", "+1"})
    EXPECT_NE(scanned(number + std::string("}")).find("no"), std::string::npos) << number;
}

TEST(JsonScanner, KnowsTheTypesOfAValue) {
  EXPECT_EQ(json_types_of("3.0"), JsonTypes::kInteger | JsonTypes::kNumber);
  EXPECT_EQ(json_types_of("3.5"), JsonTypes::kNumber);
  EXPECT_EQ(json_types_of("nul"), JsonTypes::kNone);
  EXPECT_EQ(json_types_of("[1] "), JsonTypes::kNone);
}

TEST(ToolSchemas, TypesComeFromReferencesAndCombinations) {
  const ToolSchemas schemas(parse_json(R"([{"function": {"name": "f", "parameters": {
      "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
      "properties": {"ref": {"$ref": "#/$defs/n"}, "any": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]},
                     "all": {"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]},
                     "enum": {"enum": [1, 2]}, "loop": {"$ref": "#/$defs/loop"}, "free": {}}}}}])",
                                       "tools")
                                .as_array());
  EXPECT_EQ(schemas.types_of("f", "ref"), JsonTypes::kInteger);
  EXPECT_EQ(schemas.types_of("f", "any"), JsonTypes::kInteger | JsonTypes::kNull);
  EXPECT_EQ(schemas.types_of("f", "all"), JsonTypes::kInteger);
  EXPECT_EQ(schemas.types_of("f", "enum"), JsonTypes::kInteger | JsonTypes::kNumber);
  for (const char* name : {"loop", "free", "absent"})
    EXPECT_EQ(schemas.types_of("f", name), JsonTypes::kString);
}

TEST(ToolSchemas, ValuesAreTextWhereTheyAreNotOfTheType) {
  EXPECT_EQ(parameter_json("007", JsonTypes::kString), "\"007\"");
  EXPECT_EQ(parameter_json(" 7 ", JsonTypes::kInteger), "7");
  EXPECT_EQ(parameter_json("3.0", JsonTypes::kInteger), "3");
  EXPECT_EQ(parameter_json("3.0", JsonTypes::kInteger | JsonTypes::kNumber), "3.0");
  EXPECT_EQ(parameter_json("99999999999999999999", JsonTypes::kInteger), "99999999999999999999");
  EXPECT_EQ(parameter_json("many", JsonTypes::kInteger), "\"many\"");
  EXPECT_EQ(parameter_json("False", JsonTypes::kBoolean), "false");
  EXPECT_EQ(parameter_json("null", JsonTypes::kInteger), "\"null\"");
  EXPECT_EQ(parameter_json("null", JsonTypes::kInteger | JsonTypes::kNull), "null");
}

/// JSON of the one argument of f(a=...), or "refused".
std::string literal(const std::string& python) {
  PythonCalls calls(PythonCalls::Form::kList, 0);
  calls.read("[f(a=" + python + ")]");
  if (calls.status() != PythonCalls::Status::kWhole) return "refused";
  const std::string& json = calls.calls().front().arguments;
  EXPECT_TRUE(try_parse_json(json)) << json;
  return json.substr(6, json.size() - 7);
}

TEST(PythonCalls, LiteralsBecomeJson) {
  EXPECT_EQ(literal("'a\\x41\\u00e9\\101\\n\\d\"'"), "\"aA\u00e9A\\n\\\\d\\\"\"");
  EXPECT_EQ(literal("'''it's\n\"two\"'''"), "\"it's\\n\\\"two\\\"\"");
  EXPECT_EQ(literal("''"), "\"\"");
  EXPECT_EQ(literal("[True, None, {'k': -1.5, 'l': []}, ]"),
            "[true, null, {\"k\": -1.5, \"l\": []}]");
  EXPECT_EQ(literal("1_000"), "1000");
  EXPECT_EQ(literal("0x1F"), "31");
  EXPECT_EQ(literal("+.5"), "0.5");
  EXPECT_EQ(literal("5."), "5.0");
  EXPECT_EQ(literal("12345678901234567890123"), "12345678901234567890123");
}

TEST(PythonCalls, AllElseIsRefused) {
  for (const char* text : {"x", "1 + 2", "f()", "(1, 2)", "{1: 2}", "'a' 'b'", "007", "'a", "'\n'",
                           "f'a'", "'\\N{DASH}'", "'\\xg1'", "=1"})
    EXPECT_EQ(literal(text), "refused") << text;
}

}  // namespace
}  // namespace slime::text
