/// Outputs of 19 forms with the messages that must come of them: tests/fixtures/tool_calls.

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "text/messages/parse_record.h"
#include "text/packed_files_for_tests.h"

namespace slime::text {
namespace {

/// A JSON text that was cut off, closed.
json::value completed(std::string text) {
  std::string open;
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      is_in_string = !is_in_string;
    } else if (!is_in_string && (text[i] == '{' || text[i] == '[')) {
      open += text[i] == '{' ? '}' : ']';
    } else if (!is_in_string && (text[i] == '}' || text[i] == ']')) {
      open.pop_back();
    }
  }
  if (is_in_string) text += '"';
  text += std::string(open.rbegin(), open.rend());
  return parse_json(text, "a cut-off text");
}

/// 3.0 is 3.
bool is_equal(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number())
    return a.to_number<double>() == b.to_number<double>() || a == b;
  if (a.is_array() && b.is_array()) {
    return std::ranges::equal(a.get_array(), b.get_array(), is_equal);
  }
  if (!a.is_object() || !b.is_object()) return a == b;
  return a.get_object().size() == b.get_object().size() &&
         std::ranges::all_of(a.get_object(), [&b](const auto& pair) {
           const json::value* other = b.get_object().if_contains(pair.key());
           return other != nullptr && is_equal(pair.value(), *other);
         });
}

void expect_call(const json::object& call, const json::object& expected) {
  const json::object& function = call.at("function").as_object();
  const std::string arguments(function.at("arguments").as_string());
  EXPECT_EQ(function.at("name"), expected.at("name"));
  if (const json::value* id = expected.if_contains("id")) {
    EXPECT_EQ(call.at("id"), *id);
  }
  if (const json::value* text = expected.if_contains("arguments_text")) {
    EXPECT_EQ(arguments, text->as_string());
  }
  if (const json::value* value = expected.if_contains("arguments")) {
    const auto read = try_parse_json(arguments);
    EXPECT_TRUE(read && is_equal(*read, *value)) << arguments;
  }
  if (const json::value* partial = expected.if_contains("arguments_partial")) {
    EXPECT_TRUE(is_equal(completed(arguments), *partial)) << arguments;
  }
}

TEST(PublishedCases, GiveTheirMessagesAtEverySplit) {
  std::istringstream lines(unpacked(SLIME_SOURCE_DIR "/tests/fixtures/tool_calls/cases.jsonl.xz"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line)) << "xz or python3 is needed";
  const json::object tools = parse_json(line, "tools").as_object();
  int num_cases = 0;
  while (std::getline(lines, line)) {
    json::object c = parse_json(line, "case").as_object();
    SCOPED_TRACE(c.at("id").as_string().c_str());
    c["tools"] = tools.at(c.at("tools").as_string());
    const json::object message = parse_record(c, "case", {.tries_splits = true, .seed = 7});
    const json::object& expected = c.at("expected").as_object();
    const auto expected_text = [&expected](const char* name) {
      const json::value* text = expected.if_contains(name);
      return text == nullptr || text->as_string().empty() ? json::value() : *text;
    };
    EXPECT_EQ(message.at("differs"), json::value());
    EXPECT_EQ(message.at("content"), expected_text("content"));
    EXPECT_EQ(message.at("reasoning_content"), expected_text("reasoning_content"));
    EXPECT_EQ(message.at("finish_reason"), expected.at("finish_reason"));
    const json::array& calls = message.at("tool_calls").as_array();
    const json::array& expected_calls = expected.at("tool_calls").as_array();
    ASSERT_EQ(calls.size(), expected_calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i)
      expect_call(calls[i].as_object(), expected_calls[i].as_object());
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 384);
}

}  // namespace
}  // namespace slime::text
