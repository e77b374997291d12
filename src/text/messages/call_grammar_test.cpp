// Whatever the grammar of calls lets a model write, the parser of the same format reads as those calls.

#include "text/messages/call_grammar.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/grammar_matcher.h"
#include "text/messages/call_format.h"
#include "text/messages/call_ids.h"
#include "text/messages/message_parser.h"

namespace slime::text {
namespace {

constexpr const char* kWeatherTools = R"([
  {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]},
                   "days": {"type": "integer", "minimum": 1, "maximum": 9},
                   "now": {"type": "boolean"}},
    "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now", "strict": true, "parameters": {"type": "object",
    "properties": {}, "additionalProperties": false}}}])";

const json::array& weather_tools() {
  static const json::array all = parse_json(kWeatherTools, "tools").as_array();
  return all;
}

const GrammarVocabulary& byte_vocabulary() {
  static const GrammarVocabulary vocabulary = GrammarVocabulary::of_bytes();
  return vocabulary;
}

std::shared_ptr<const CompiledGrammar> tag_grammar(const json::object& tag) {
  return compile_grammar({.kind = GrammarKind::kStructuralTag, .source = json_text(tag)},
                         byte_vocabulary());
}

bool is_accepted(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  return matcher.accept_text(text) && matcher.may_end();
}

/// Any text of the grammar, which ends where it may after `num_bytes`.
std::string random_text(const std::shared_ptr<const CompiledGrammar>& grammar, std::mt19937& chance,
                        std::size_t num_bytes) {
  GrammarMatcher matcher(grammar);
  const auto width = static_cast<std::size_t>(grammar->width());
  std::string text;
  while (text.size() < 5000) {
    if (matcher.may_end() && text.size() >= num_bytes) return text;
    std::vector<uint32_t> words((width + 31) / 32, 0);
    if (matcher.allow(words) != GrammarMatcher::Allowed::kSome) return text;
    std::vector<TokenId> allowed;
    for (int id = 0; id < 256; ++id)
      if ((words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0) allowed.push_back(id);
    if (allowed.empty()) return text;  // only the end
    const TokenId id = allowed[chance() % allowed.size()];
    EXPECT_TRUE(matcher.accept(id));
    text += static_cast<char>(id);
  }
  ADD_FAILURE() << "no end: " << text.substr(0, 300);
  return text;
}

Message parsed_calls(const CallFormat& format, const std::string& text) {
  const MessageFormat formats(&format, nullptr, nullptr);
  const ToolSchemas schemas(weather_tools());
  return parse_message(formats, {.tools = &schemas, .make_id = make_call_ids(format.ids, 1, 0)},
                       text, OutputEnd::kStop);
}

CallGrammar grammar_of_calls(const CallSyntax& syntax, const CallFormat& format) {
  return {.syntax = &syntax, .tools = &weather_tools(), .is_harmony = format.is_harmony};
}

void expect_calls(const Message& message, const std::string& where) {
  EXPECT_FALSE(message.calls.empty()) << where;
  EXPECT_TRUE(message.content.empty()) << where << " -> " << message.content;
  for (const auto& call : message.calls) {
    const auto read = try_parse_json(call.arguments);
    ASSERT_TRUE(read && read->is_object()) << where << " -> " << call.arguments;
    const json::object& arguments = read->get_object();
    if (call.name == "now") {
      EXPECT_TRUE(arguments.empty()) << where;
      continue;
    }
    ASSERT_EQ(call.name, "get_weather") << where;
    EXPECT_TRUE(arguments.at("city") == "Oslo" || arguments.at("city") == "Rome") << where;
    ASSERT_TRUE(arguments.at("days").is_int64()) << where << call.arguments;
    EXPECT_GE(arguments.at("days").get_int64(), 1) << where;
    EXPECT_LE(arguments.at("days").get_int64(), 9) << where;
    if (const json::value* now = arguments.if_contains("now")) {
      EXPECT_TRUE(now->is_bool()) << where;
    }
  }
}

TEST(CallGrammar, WhatAForcedModelWritesIsReadAsCallsInEachForm) {
  std::mt19937 chance(7);
  std::set<std::string> forms;
  for (const CallFormat& format : call_formats()) {
    for (const CallSyntax* syntax : {&format.written, &format.written_without_separator}) {
      if (syntax->begin.empty()) continue;
      forms.insert(std::string(format.name) + std::string(syntax->open));
      CallGrammar calls = grammar_of_calls(*syntax, format);
      calls.parallel = false;
      const auto one = tag_grammar(forced_calls(calls));
      calls.parallel = true;
      const auto several = tag_grammar(forced_calls(calls));
      std::size_t num_calls = 0;
      for (int i = 0; i < 12; ++i) {
        // Harmony's thoughts are free, and a random one does not end.
        const std::string begin = format.is_harmony ? "<|channel|>commentary to=" : "";
        GrammarMatcher matcher(one);
        ASSERT_TRUE(matcher.accept_text(begin)) << format.name;
        if (format.is_harmony) break;
        const std::string text = random_text(one, chance, 0);
        const Message message = parsed_calls(format, text);
        EXPECT_EQ(message.calls.size(), 1U) << format.name << ": " << text;
        expect_calls(message, std::string(format.name) + ": " + text);
        const std::string more = random_text(several, chance, 400);
        const Message row = parsed_calls(format, more);
        num_calls += row.calls.size();
        expect_calls(row, std::string(format.name) + ": " + more);
      }
      if (!format.is_harmony) {
        EXPECT_GT(num_calls, 14U) << format.name << " in 12 rows";
      }
    }
  }
  EXPECT_EQ(forms.size(), 23U) << "22 formats, of which one has an older form";
}

TEST(CallGrammar, HarmonysCallComesBehindItsThoughts) {
  const CallFormat& harmony = **find_call_format("gpt-oss");
  const auto grammar = tag_grammar(forced_calls(grammar_of_calls(harmony.written, harmony)));
  const std::string call =
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
      R"({"city": "Oslo", "days": 3})";
  EXPECT_TRUE(is_accepted(grammar, call));
  EXPECT_TRUE(is_accepted(grammar,
                          "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant" + call));
  EXPECT_FALSE(is_accepted(grammar, "<|channel|>final<|message|>Sunny."));
  expect_calls(parsed_calls(harmony, call), call);
}

TEST(CallGrammar, BoundCallsMayComeAndMayNot) {
  for (const CallFormat& format : call_formats()) {
    CallGrammar calls = grammar_of_calls(format.written, format);
    calls.binds_strict_alone = true;
    const auto grammar = tag_grammar(bound_calls(calls));
    if (!format.is_harmony) {
      EXPECT_TRUE(is_accepted(grammar, "Just text.")) << format.name;
    }
    std::mt19937 chance(3);
    if (format.is_harmony) continue;
    const std::string call = random_text(tag_grammar(forced_calls(calls)), chance, 0);
    EXPECT_TRUE(is_accepted(grammar, call)) << format.name << ": " << call;
    // Another tool than those that there are.
    std::string other = call;
    const auto name = other.find(call.find("get_weather") == std::string::npos ? "now" : "get_w");
    other.replace(name, 3, "fly");
    EXPECT_FALSE(is_accepted(grammar, other)) << format.name << ": " << other;
  }
}

TEST(CallGrammar, CallsOrAnAnswerAreOneOfTheTwo) {
  const CallFormat& qwen = **find_call_format("qwen25");
  const json::object format{{"type", "json_schema"}, {"json_schema", {{"type", "integer"}}}};
  const auto grammar = tag_grammar(calls_or(grammar_of_calls(qwen.written, qwen), format));
  EXPECT_TRUE(is_accepted(grammar, "7"));
  EXPECT_TRUE(
      is_accepted(grammar, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(is_accepted(grammar, "seven"));
}

TEST(CallGrammar, ATextWithoutAnEndIsAnyTextOfATaggedParameter) {
  const CallFormat& coder = **find_call_format("qwen3_coder");
  const json::array free = parse_json(R"([{"type": "function", "function": {"name": "write",
      "parameters": {"type": "object", "properties": {"path": {"type": "string"},
      "lines": {"type": "array", "items": {"type": "integer"}}}, "required": ["path"]}}}])",
                                      "tools")
                               .as_array();
  const auto grammar =
      tag_grammar(forced_calls({.syntax = &coder.written, .tools = &free, .parallel = false}));
  const std::string begin = "<tool_call>\n<function=write>\n", end = "</function>\n</tool_call>";
  const std::string path = "<parameter=path>\na \"b\" <c>\n\n</parameter>\n";
  EXPECT_TRUE(is_accepted(grammar, begin + path + end));
  EXPECT_TRUE(
      is_accepted(grammar, begin + path + "<parameter=lines>\n[1, 2]\n</parameter>\n" + end));
  EXPECT_FALSE(
      is_accepted(grammar, begin + path + "<parameter=lines>\nmany\n</parameter>\n" + end));
  EXPECT_FALSE(is_accepted(grammar, begin + end)) << "a required parameter is missing";
}

}  // namespace
}  // namespace slime::text
