#include "engine/chat/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "engine/chat/templates_for_tests.h"

namespace slime::engine {
namespace {

json::array messages_of(std::string_view text) { return parse_json(text, "messages").as_array(); }

/// What the template makes of the messages; the problems, where there are some.
std::string rendered(const char* source, std::string_view messages,
                     const json::object& options = {}) {
  const RenderChatFn render = render_fn(source);
  std::vector<std::string> problems;
  const json::array out =
      normalised_messages(messages_of(messages), probe_template(render), problems);
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return problems.empty() ? render(out, options) : text;
}

json::array normalised(std::string_view messages, const TemplateTraits& traits = {}) {
  std::vector<std::string> problems;
  json::array out = normalised_messages(messages_of(messages), traits, problems);
  EXPECT_TRUE(problems.empty()) << problems.front();
  return out;
}

TEST(Messages, ContentBesideCallsMayBeNullOrAbsent) {
  for (const char* content : {R"("content": null,)", ""}) {
    const std::string messages =
        R"([{"role": "user", "content": "hi"}, {"role": "assistant", )" + std::string(content) +
        R"("tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments":
        "{\"a\": 1}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "R"}])";
    EXPECT_EQ(rendered(kJsonArguments, messages), R"(<user>hi<assistant><call>f {"a": 1}<tool>R)");
    EXPECT_EQ(rendered(kCallsWithoutContent, messages), R"(<user>hi<call>f {"a": 1}<tool>R)");
    EXPECT_EQ(rendered(kChatMl, messages),
              "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
              "<|im_start|>tool\nR<|im_end|>\n");
  }
}

TEST(Messages, AnAnswerIsSentBackUnchanged) {
  EXPECT_EQ(normalised(R"([{"role": "assistant", "content": "Hi", "refusal": null, "audio": null,
      "annotations": [], "function_call": null, "tool_calls": null, "reasoning_content": null,
      "reasoning": null}])"),
            messages_of(R"([{"role": "assistant", "content": "Hi"}])"));
}

TEST(Messages, ThoughtsGoByEitherName) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    EXPECT_EQ(
        normalised(R"([{"role": "assistant", "content": "Hi", ")" + std::string(name) +
                   R"(": "Hm."}])"),
        messages_of(R"([{"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}])"));
  }
}

TEST(Messages, ArgumentsStayAsTheyWereSampledWhereTheTemplateTakesText) {
  const char* messages = R"([{"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"n\":  1e5,\"n2\": 12345678901234567890123 }"}},
      {"function": {"name": "g", "arguments": {"b": 1, "a": [1.0, "\u00e9"]}}},
      {"function": {"name": "h", "arguments": ""}}, {"function": {"name": "i"}}]}])";
  EXPECT_EQ(rendered(kTextOrObjectArguments, messages),
            "<assistant><call>f {\"n\":  1e5,\"n2\": 12345678901234567890123 }"
            "<call>g {\"b\": 1, \"a\": [1.0, \"\u00e9\"]}<call>h {}<call>i {}");
  EXPECT_EQ(rendered(kJsonArguments, messages),
            "<assistant><call>f {\"n\": 100000.0, \"n2\": 12345678901234567890123}"
            "<call>g {\"b\": 1, \"a\": [1.0, \"\u00e9\"]}<call>h {}<call>i {}");
}

TEST(Messages, ArgumentsThatAreNoObjectAreKeptAsText) {
  const char* messages = R"([{"role": "assistant", "content": null, "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"a\": "}}]}])";
  EXPECT_EQ(rendered(kTextOrObjectArguments, messages), R"(<assistant><call>f {"a": )");
  EXPECT_EQ(rendered(kKeyByKeyArguments, messages), R"(<assistant><call>f <_raw>{"a": )");
}

TEST(Messages, ObjectsBecomeTextForATemplateThatJoinsStrings) {
  EXPECT_EQ(rendered(kCallsWithoutContent, R"([{"role": "assistant", "content": null, "tool_calls":
      [{"function": {"name": "f", "arguments": {"a": {"b": "c"}}}}]}])"),
            R"(<call>f {"a": {"b": "c"}})");
}

TEST(Messages, TextBesideCallsIsAMessageOfItsOwnWhereItWouldHideThem) {
  EXPECT_EQ(rendered(kCallsWithoutContent, R"([{"role": "assistant", "content": "I look.",
      "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}])"),
            "<assistant>I look.<call>f {}");
}

TEST(Messages, CallsOfCustomToolsAreCallsWithOneText) {
  EXPECT_EQ(rendered(kTextOrObjectArguments, R"([{"role": "assistant", "tool_calls": [{"id": "c",
      "type": "custom", "custom": {"name": "sh", "input": "ls \"a\""}}]}])"),
            R"(<assistant><call>sh {"input": "ls \"a\""})");
}

TEST(Messages, TheOldFormsOfCallsAndResultsAreRead) {
  EXPECT_EQ(rendered(kTextOrObjectArguments, R"([{"role": "assistant", "content": null,
      "function_call": {"name": "f", "arguments": "{}"}}, {"role": "function", "name": "f",
      "content": "R"}])"),
            "<assistant><call>f {}<tool>R");
}

TEST(Messages, DevelopersAreSystemMessagesWhereTheTemplateKnowsThemNot) {
  const char* messages =
      R"([{"role": "developer", "content": "D"}, {"role": "user", "content": "hi"}])";
  EXPECT_EQ(rendered(kJsonArguments, messages), "<system>D<user>hi");
  EXPECT_EQ(rendered(kDeveloper, messages), "<instructions>D<user>hi");
}

TEST(Messages, SystemMessagesAreJoinedWhereOneAloneIsTaken) {
  const char* messages =
      R"([{"role": "system", "content": "A"}, {"role": "developer", "content": "B"},
      {"role": "user", "content": "hi"}, {"role": "system", "content": "C"}])";
  EXPECT_EQ(rendered(kSystemFirst, messages), "<system>A\n\nB\n\nC<user>hi");
  EXPECT_EQ(rendered(kNoSystem, messages), "<user>A\n\nB\n\nC\n\nhi");
  EXPECT_EQ(rendered(kJsonArguments, messages), "<system>A<system>B<user>hi<system>C");
  EXPECT_EQ(rendered(kNoSystem, R"([{"role": "system", "content": "A"}])"), "<user>A");
}

TEST(Messages, PartsAreJoinedOrKeptAsTheTemplateTakesThem) {
  const char* messages = R"([{"role": "user", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "tool", "content": "c"}])";
  EXPECT_EQ(rendered(kJsonArguments, messages), "<user>a b<tool>c");
  EXPECT_EQ(rendered(kTextOrParts, messages), "<user>|a|b<tool>c");
  EXPECT_EQ(rendered(kPartsAlone, messages), "<user>|a|b<tool>|c");
}

TEST(Messages, ResultsComeInTheOrderOfTheirCalls) {
  const auto conversation = [](const char* first, const char* second) {
    return R"([{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f"}}, {"id":
        "y", "function": {"name": "g"}}]}, {"role": "tool", "tool_call_id": ")" +
           std::string(first) + R"(", "content": "1"}, {"role": "tool", "tool_call_id": ")" +
           second + R"(", "content": "2"}, {"role": "user", "content": "u"}])";
  };
  const std::string calls = "<assistant><call>f {}<call>g {}";
  EXPECT_EQ(rendered(kJsonArguments, conversation("x", "y")), calls + "<tool>1<tool>2<user>u");
  EXPECT_EQ(rendered(kJsonArguments, conversation("y", "x")), calls + "<tool>2<tool>1<user>u");
  EXPECT_EQ(rendered(kJsonArguments, conversation("y", "z")), calls + "<tool>1<tool>2<user>u")
      << "an id that answers no call: the order stays";
  EXPECT_EQ(rendered(kJsonArguments, conversation("x", "x")), calls + "<tool>1<tool>2<user>u");
}

TEST(Messages, IdsOfCallsAreShortenedAlikeInCallsAndResults) {
  TemplateTraits traits;
  traits.call_ids = CallIdForm::kNineCharacters;
  const json::array out = normalised(R"([{"role": "assistant", "tool_calls": [{"id": "call_12",
      "function": {"name": "f"}}, {"id": "abcDEF123", "function": {"name": "g"}}]},
      {"role": "tool", "tool_call_id": "call_12", "content": "1"}])",
                                     traits);
  const auto& calls = out[0].at("tool_calls").as_array();
  const json::value id = calls[0].at("id");
  EXPECT_EQ(id.as_string().size(), 9u);
  EXPECT_EQ(out[1].at("tool_call_id"), id);
  EXPECT_EQ(calls[1].at("id"), "abcDEF123");
}

TEST(Messages, IdsOfCallsAreNumberedOverTheConversation) {
  TemplateTraits traits;
  traits.call_ids = CallIdForm::kNumbered;
  const json::array out = normalised(R"([{"role": "assistant", "tool_calls": [{"id": "toolu_1",
      "function": {"name": "f"}}]}, {"role": "tool", "tool_call_id": "toolu_1", "content": "1"},
      {"role": "assistant", "tool_calls": [{"id": "functions.g:7", "function": {"name": "g"}},
      {"id": "toolu_1", "function": {"name": "h"}}]},
      {"role": "tool", "tool_call_id": "functions.g:7", "content": "2"},
      {"role": "tool", "tool_call_id": "toolu_1", "content": "3"}])",
                                     traits);
  EXPECT_EQ(out[0].at_pointer("/tool_calls/0/id"), "functions.f:0");
  EXPECT_EQ(out[1].at("tool_call_id"), "functions.f:0");
  EXPECT_EQ(out[2].at_pointer("/tool_calls/0/id"), "functions.g:7") << "as it was sampled";
  EXPECT_EQ(out[2].at_pointer("/tool_calls/1/id"), "functions.h:2");
  EXPECT_EQ(out[3].at("tool_call_id"), "functions.g:7");
  EXPECT_EQ(out[4].at("tool_call_id"), "functions.h:2");
}

TEST(Messages, WhatIsWrongIsNamedWithItsPlace) {
  for (const auto& [messages, problem] : {
           std::tuple<const char*, const char*>{"[]", "messages must be a list of 1 to "},
           {R"([7])", "messages[0] must be an object with a role"},
           {R"([{"role": "user", "content": "x"}, {"content": "x"}])", "messages[1].role "},
           {R"([{"role": "user", "content": 7}])", "messages[0].content must be text"},
           {R"([{"role": "user"}])", "messages[0].content must be given"},
           {R"([{"role": "user", "content": [{"type": "image_url"}]}])",
            "messages[0].content parts must be"},
           {R"([{"role": "assistant", "tool_calls": [7]}])", "messages[0].tool_calls[0] must be"},
           {R"([{"role": "assistant", "tool_calls": [{"id": 7}]}])",
            "messages[0].tool_calls[0].id "},
           {R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])",
            "messages[0].tool_calls[0].function.name "},
           {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments":
            [1]}}]}])",
            "messages[0].tool_calls[0].function.arguments must be"},
           {R"([{"role": "assistant", "content": "x", "reasoning_content": 1}])",
            "messages[0].reasoning_content must be text"},
       }) {
    EXPECT_TRUE(rendered(kChatMl, messages).starts_with(problem))
        << messages << " -> " << rendered(kChatMl, messages);
  }
}

TEST(Messages, MembersThatTemplatesMayReadAreKept) {
  EXPECT_EQ(normalised(R"([{"role": "user", "content": "x", "name": "Bo", "weight": 0.5}])"),
            messages_of(R"([{"role": "user", "content": "x", "name": "Bo", "weight": 0.5}])"));
}

}  // namespace
}  // namespace slime::engine
