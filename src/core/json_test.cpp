#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace slime {
namespace {

using testing::HasSubstr;

std::string again(std::string_view text) { return json_text(parse_json(text, "test")); }

std::string refusal(std::string_view text) {
  try {
    parse_json(text, "test");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(Json, WholeNumbersAreExactHoweverLong) {
  for (const char* text :
       {"0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
        "18446744073709551616", "-9223372036854775809", "12345678901234567890123",
        "[-123456789012345678901234567890123456789012345678901234567890]",
        R"({"a":{"b":[1,100000000000000000000000]}})"}) {
    EXPECT_EQ(again(text), text);
    EXPECT_EQ(again(again(text)), text);
  }
  EXPECT_EQ(*big_integer_digits(parse_json("12345678901234567890123", "test")),
            "12345678901234567890123");
  EXPECT_EQ(big_integer_digits(parse_json("18446744073709551615", "test")), nullptr);
  EXPECT_EQ(again(std::string(4300, '9')), std::string(4300, '9'));
  EXPECT_THAT(refusal(std::string(4301, '9')), HasSubstr("more than 4300 digits"));
}

TEST(Json, FractionsAreTheNearestDoubleAndStayFloats) {
  // Boost 1.81 reads some of these a unit in the last place off.
  for (const double number :
       {0.1, 1.1, 123456.789e-7, 9007199254740993.0, 5e-324, 1.7976931348623157e308,
        2.2250738585072014e-308, 0.30000000000000004, 8.41, 1e23, 4.35}) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17e", number);
    EXPECT_EQ(parse_json(text, "test").as_double(), number) << text;
  }
  EXPECT_EQ(again("1.10"), "1.1");
  EXPECT_EQ(again("1E5"), "100000.0");
  EXPECT_EQ(again("-0.0"), "-0.0");
  EXPECT_EQ(again("-0"), "0");
  EXPECT_EQ(again("1e16"), "1e+16");
  EXPECT_EQ(again("[1.0,1e-7]"), "[1.0,1e-07]");
}

TEST(Json, AFractionThatIsTooLargeIsInfinityForEveryReader) {
  EXPECT_TRUE(std::isinf(parse_json("1e400", "test").as_double()));
  EXPECT_EQ(again("[1e400,-1e400,1e-400]"), "[1e999,-1e999,0.0]");
  EXPECT_TRUE(std::isinf(parse_json(again("1e400"), "test").as_double()));
}

TEST(Json, NoTextCanClaimToBeALongNumber) {
  EXPECT_THAT(refusal("{\"\\u0001digits\": \"12\"}"), HasSubstr("U+0001"));
}

TEST(Json, TextsAreEscapedAsJsonHasIt) {
  EXPECT_EQ(json_text(std::string("a\"b\\c\n\t\x01\x7f\u00e9")),
            "\"a\\\"b\\\\c\\n\\t\\u0001\x7f\u00e9\"");
  const std::string all = "\b\f\n\r\t\v";
  EXPECT_EQ(parse_json(json_text(all), "test").as_string(), all);
}

TEST(Json, KeysAreCountedUpToALimit) {
  EXPECT_EQ(count_keys(R"({"a":[{"b":1},{"c":{"d":2}}]})", 10), 4U);
  EXPECT_EQ(count_keys(R"({"a":[{"b":1},{"c":{"d":2}}]})", 2), 3U);
  EXPECT_EQ(count_keys("[1,2", 10), 0U);
}

}  // namespace
}  // namespace slime
