#include "engine/http/anthropic/tool_input.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

/// What goes out of a text that comes whole and byte by byte, which must be the same object.
std::string streamed(std::string_view text) {
  ToolInput whole, bytes;
  std::string all = whole.add(text);
  all += whole.finish();
  std::string one;
  for (const char byte : text) one += bytes.add({&byte, 1});
  one += bytes.finish();
  EXPECT_EQ(all, one) << text;
  EXPECT_EQ(json::value(whole.object()), json::value(bytes.object())) << text;
  EXPECT_EQ(parse_json(all, "input"), json::value(whole.object())) << text;
  return all;
}

TEST(ToolInput, AnObjectGoesOutAsItIs) {
  EXPECT_EQ(streamed(R"({"a": [1, "x\n", null]})"), R"({"a": [1, "x\n", null]})");
  EXPECT_EQ(streamed(" {} \n"), "{}");
  EXPECT_EQ(streamed(""), "{}");
  ToolInput input;
  EXPECT_EQ(input.add("{\"a\": 1"), "{\"a\": 1");  // nothing is held back but the last brace
}

TEST(ToolInput, WhatIsNoObjectIsKeptAsText) {
  EXPECT_EQ(streamed("oops"), R"({"_raw":"oops"})");
  EXPECT_EQ(streamed("[1]"), R"({"_raw":"[1]"})");
  EXPECT_EQ(streamed("\"{}\""), R"({"_raw":"\"{}\""})");
}

TEST(ToolInput, WhatBreaksAnObjectIsHeldBackAndItIsClosed) {
  EXPECT_EQ(streamed("{\"a\": 1} trailing"), R"({"a": 1,"_raw":"{\"a\": 1} trailing"})");
  EXPECT_EQ(streamed("{\"a\": 1, oops"), R"({"a": 1, "_raw":"{\"a\": 1, oops"})");
  EXPECT_EQ(streamed("{oops"), R"({"_raw":"{oops"})");
}

TEST(ToolInput, IsClosedWhereverItIsCut) {
  const std::string text = R"({"a": [1.5e-3, {"b": "x\u00e9\\"}, true, false, null], "c": -2})";
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::string cut = text.substr(0, length);
    const std::string all = streamed(cut);
    EXPECT_TRUE(all.starts_with(cut)) << all;
    if (length > 0) {
      EXPECT_EQ(parse_json(all, "input").at("_raw").get_string(), cut);
    }
  }
  EXPECT_EQ(streamed(text), text);
}

}  // namespace
}  // namespace slime::engine
