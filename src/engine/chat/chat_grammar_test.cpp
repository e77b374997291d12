#include "engine/chat/chat_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/chat/chat_prompt.h"
#include "engine/chat/templates_for_tests.h"
#include "engine/http/fake_engine.h"

namespace slime::engine {
namespace {

using testing::HasSubstr;
using Mode = ToolChoice::Mode;

constexpr const char* kLooseTool = R"({"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer"}}}}})";
constexpr const char* kStrictTool =
    R"({"type": "function", "function": {"name": "g", "strict": true,
    "parameters": {"type": "object", "properties": {"b": {"type": "integer"}}}}})";

struct GrammarChat {
  explicit GrammarChat(const ChatParsers& parsers = {.tool_calls = "qwen25", .reasoning = "qwen3"},
                       const char* source = kTextOrObjectArguments)
      : tokenizer(make_ascii_tokenizer()),
        served{.name = "ascii",
               .context_length = 4000,
               .vocab_size = 128,
               .sampling_defaults = {},
               .tokenizer = tokenizer.get(),
               .longest_token_bytes = longest_token_bytes(*tokenizer),
               .chat = std::make_shared<const ChatModel>(render_fn(source), "", tokenizer.get(),
                                                         parsers)} {
    request.messages = parse_json(R"([{"role": "user", "content": "hi"}])", "").as_array();
  }

  GrammarChat& with_tools(const std::string& tools) {
    request.tools = parse_json("[" + tools + "]", "tools").as_array();
    return *this;
  }
  /// As a protocol's field does it.
  GrammarChat& with_format(const char* schema) {
    request.engine.sampling.json_schema = schema;
    request.engine.grammar_field = "response_format";
    return *this;
  }
  GenerateRequest sent() const { return prepare_chat(request, served).requests.at(0); }

  std::unique_ptr<text::Tokenizer> tokenizer;
  ServedModel served;
  ChatRequest request;
};

std::string tag_kind_of(const GenerateRequest& request) {
  const json::value tag = parse_json(request.sampling.structural_tag, "tag");
  return std::string(tag.at_pointer("/format/type").as_string());
}

TEST(ChatGrammar, WithoutAWishThereIsNone) {
  GrammarChat chat;
  EXPECT_FALSE(chat.with_tools(kLooseTool).sent().sampling.has_grammar());
}

TEST(ChatGrammar, ARequiredCallIsARowOfCallsInTheFormOfTheParser) {
  GrammarChat chat;
  chat.with_tools(std::string(kLooseTool) + "," + kStrictTool);
  chat.request.tool_choice.mode = Mode::kRequired;
  const GenerateRequest request = chat.sent();
  EXPECT_EQ(request.grammar_field, "tools");
  const json::value format =
      parse_json(request.sampling.structural_tag, "tag").at_pointer("/format");
  EXPECT_EQ(format.at("type"), "tags_with_separator");
  EXPECT_EQ(format.at("at_least_one"), true);
  EXPECT_EQ(format.at("stop_after_first"), false);
  EXPECT_EQ(format.at_pointer("/tags/0/begin"), "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(format.at_pointer("/tags/0/end"), "}\n</tool_call>");
  EXPECT_EQ(format.at_pointer("/tags/1/content/json_schema/properties/b/type"), "integer");
}

TEST(ChatGrammar, ANamedToolIsTheOnlyOneAndOneCallIsEnough) {
  GrammarChat chat;
  chat.with_tools(std::string(kLooseTool) + "," + kStrictTool);
  chat.request.tool_choice = {.mode = Mode::kRequired, .names = {"g"}};
  chat.request.parallel_tool_calls = false;
  const json::value tag = parse_json(chat.sent().sampling.structural_tag, "tag");
  EXPECT_EQ(tag.at_pointer("/format/tags").as_array().size(), 1U);
  EXPECT_EQ(tag.at_pointer("/format/stop_after_first"), true);
}

TEST(ChatGrammar, StrictToolsAreBoundOnceTheirCallBegins) {
  GrammarChat chat;
  const GenerateRequest request =
      chat.with_tools(std::string(kLooseTool) + "," + kStrictTool).sent();
  EXPECT_EQ(tag_kind_of(request), "triggered_tags");
  const json::value tag = parse_json(request.sampling.structural_tag, "tag");
  EXPECT_EQ(tag.at_pointer("/format/triggers/0"), "<tool_call>");
  EXPECT_EQ(tag.at_pointer("/format/tags/0/content/json_schema"),
            parse_json(R"({"type": "object"})", ""));
  EXPECT_EQ(tag.at_pointer("/format/tags/1/content/json_schema/properties/b/type"), "integer");
}

TEST(ChatGrammar, AFormatBesideToolsIsCallsOrTheAnswer) {
  GrammarChat chat;
  const GenerateRequest request =
      chat.with_tools(kLooseTool).with_format(R"({"enum": [1]})").sent();
  EXPECT_EQ(tag_kind_of(request), "or");
  EXPECT_TRUE(request.sampling.json_schema.empty());
  EXPECT_EQ(request.grammar_field, "response_format");
  chat.request.tool_choice.mode = Mode::kNone;
  EXPECT_EQ(chat.sent().sampling.json_schema, R"({"enum": [1]})");
  chat.request.tool_choice.mode = Mode::kRequired;
  EXPECT_EQ(tag_kind_of(chat.sent()), "tags_with_separator");
}

TEST(ChatGrammar, AClientsOwnGrammarIsTheWholeOutput) {
  GrammarChat chat;
  chat.with_tools(kStrictTool).request.engine.sampling.regex = "a";
  const GenerateRequest request = chat.sent();
  EXPECT_EQ(request.sampling.regex, "a");
  EXPECT_TRUE(request.thoughts.opening.empty());
  EXPECT_FALSE(request.thoughts.are_open);
}

TEST(ChatGrammar, AnAnswerMayComeBehindThoughts) {
  GrammarChat chat;
  const FreeThoughts thoughts = chat.with_format("{}").sent().thoughts;
  EXPECT_EQ(thoughts.opening, "<think>");
  EXPECT_EQ(thoughts.closing, "</think>");
  EXPECT_FALSE(thoughts.are_open);
  chat.request.template_options["enable_thinking"] = false;
  EXPECT_TRUE(chat.sent().thoughts.opening.empty());
}

TEST(ChatGrammar, ThoughtsThatThePromptOpensAreFreeWhateverTheGrammar) {
  constexpr const char* kOpens =
      "{%- for m in messages %}{{ '<' + m.role + '>' + m.content }}{%- endfor %}"
      "{{ '<assistant><think>\\n' }}";
  GrammarChat chat({.tool_calls = "qwen25", .reasoning = "qwen3"}, kOpens);
  chat.request.engine.sampling.ebnf = "root ::= \"a\"";
  EXPECT_TRUE(chat.sent().thoughts.are_open);
  EXPECT_EQ(chat.sent().thoughts.closing, "</think>");
}

TEST(ChatGrammar, HarmonysThoughtsAreAMessageOfTheGrammar) {
  GrammarChat chat({.tool_calls = "gpt-oss", .reasoning = "gpt-oss"});
  const GenerateRequest request = chat.with_format(R"({"enum": [1]})").sent();
  const json::value tag = parse_json(request.sampling.structural_tag, "tag");
  EXPECT_EQ(tag.at_pointer("/format/elements/0/content/begin"), "<|channel|>analysis<|message|>");
  EXPECT_EQ(tag.at_pointer("/format/elements/1/elements/0/value"), "<|channel|>final<|message|>");
}

TEST(ChatGrammar, AModelWhoseTemplateShowsNoCallsIsForcedToWriteQwens) {
  GrammarChat chat({.tool_calls = "auto", .reasoning = "none"});
  chat.with_tools(kLooseTool).request.tool_choice.mode = Mode::kRequired;
  const ChatCall call = prepare_chat(chat.request, chat.served);
  EXPECT_EQ(tag_kind_of(call.requests.at(0)), "tags_with_separator");
  EXPECT_TRUE(call.reading->reads_calls);
  chat.request.tool_choice.mode = Mode::kAuto;
  EXPECT_FALSE(prepare_chat(chat.request, chat.served).reading->reads_calls);
}

TEST(ChatGrammar, WhatCannotBeForcedIsRefused) {
  const auto problem_of = [](const GrammarChat& chat) -> std::string {
    try {
      static_cast<void>(chat.sent());
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  GrammarChat unknown({.tool_calls = "none", .reasoning = "none"});
  unknown.with_tools(kLooseTool).request.tool_choice.mode = Mode::kRequired;
  EXPECT_THAT(problem_of(unknown), HasSubstr("--tool-call-parser"));
  GrammarChat two;
  two.with_tools(kLooseTool).request.tool_choice.mode = Mode::kRequired;
  two.request.engine.sampling.regex = "a";
  EXPECT_THAT(problem_of(two), HasSubstr("tool_choice asks for a call, and regex is a grammar"));
  GrammarChat broken;
  broken.with_tools(kLooseTool).with_format("{");
  EXPECT_THAT(problem_of(broken), HasSubstr("response_format"));
}

}  // namespace
}  // namespace slime::engine
