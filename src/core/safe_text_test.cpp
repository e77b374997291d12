#include "core/safe_text.h"

#include <gtest/gtest.h>

#include "core/json.h"

namespace slime {
namespace {

TEST(SafeText, ControlCharactersAreEscapedButLineFeedsAndTabs) {
  EXPECT_EQ(safe_text("a\033[2J\tb\n\x7f\r\x01"), "a\\x1b[2J\tb\n\\x7f\\x0d\\x01");
  EXPECT_EQ(safe_text(std::string_view("\0", 1)), "\\x00");
}

TEST(SafeText, ControlCharactersOfTwoBytesAreEscaped) {
  EXPECT_EQ(safe_text("\xc2\x80\xc2\x9b\xc2\x9f"), "\\x80\\x9b\\x9f");
  EXPECT_EQ(safe_text("\xc2\xa0\xc3\x9b"), "\xc2\xa0\xc3\x9b") << "no-break space and a letter";
}

TEST(SafeText, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(safe_text("\x9b"), "\\x9b") << "an order of one byte";
  EXPECT_EQ(safe_text("\xc2"), "\\xc2");
  EXPECT_EQ(safe_text("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(safe_text("\xc0\x9b\xe0\x82\x9b"), "\\xc0\\x9b\\xe0\\x82\\x9b") << "overlong";
  EXPECT_EQ(safe_text("\xc3\xa4\xff"), "\xc3\xa4\\xff");
}

TEST(SafeText, OtherTextStays) {
  const std::string text = "2+3? \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x95\x9c";
  EXPECT_EQ(safe_text(text), text);
  EXPECT_EQ(safe_text(""), "");
}

TEST(SafeText, JsonKeepsItsMeaning) {
  const std::string json = json_text(json::object{{"text", "\x7f\xc2\x9b[2J\xc3\x9b\xc2\xa0"}});
  const std::string safe = safe_json(json);
  EXPECT_EQ(safe, "{\"text\":\"\\u007f\\u009b[2J\xc3\x9b\xc2\xa0\"}");
  EXPECT_EQ(parse_json(safe, "safe"), parse_json(json, "given"));
}

}  // namespace
}  // namespace slime
