/// Parts of a chat that need no server: events, conversation, settings, picture.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>

#include "chat/answer.h"
#include "chat/completions.h"
#include "chat/conversation.h"
#include "chat/screen.h"
#include "chat/settings.h"
#include "core/error.h"

namespace slime::chat {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string event(const std::string& delta, const std::string& rest = "") {
  return R"({"choices": [{"index": 0, "delta": )" + delta + rest + "}]}";
}

TEST(ChatEvents, ComeWholeHoweverTheBytesArrive) {
  EventLines lines;
  std::vector<std::string> seen;
  const auto use = [&](std::string_view data) { seen.emplace_back(data); };
  for (const char byte : std::string("data: {\"a\": 1}\r\n\r\n: remark\ndata: [DONE]\n\n"))
    EXPECT_TRUE(lines.add(std::string(1, byte), use));
  EXPECT_THAT(seen, ElementsAre("{\"a\": 1}", "[DONE]"));
}

TEST(ChatEvents, AddUpToAnAnswer) {
  Answer answer;
  add_event(event(R"({"role": "assistant", "content": ""})"), answer);
  add_event(event(R"({"reasoning_content": "hm"})"), answer);
  EXPECT_EQ(add_event(event(R"({"content": "Par"})"), answer).content, "Par");
  add_event(event(R"({"content": "is"})"), answer);
  add_event(
      event(
          R"({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]})"),
      answer);
  const AnswerPart part = add_event(
      event(
          R"({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})",
          R"(, "logprobs": {"content": [{"token": "{}", "bytes": [123, 125], "logprob": -0.5}]})"),
      answer);
  add_event(event("{}", R"(, "finish_reason": "tool_calls")"), answer);
  add_event(R"({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}})", answer);
  add_event("[DONE]", answer);
  EXPECT_EQ(answer.thoughts, "hm");
  EXPECT_EQ(answer.content, "Paris");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].id + answer.calls[0].name + answer.calls[0].arguments, "c1f{}");
  ASSERT_EQ(part.tokens.size(), 1u);
  EXPECT_EQ(part.tokens[0].bytes, "{}");
  EXPECT_EQ(part.tokens[0].log_prob, -0.5);
  EXPECT_EQ(answer.finish, "tool_calls");
  EXPECT_EQ(answer.answer_tokens, 9);
}

TEST(ChatEvents, ErrorsOfTheStreamAreThrown) {
  Answer answer;
  EXPECT_THROW(add_event(R"({"error": {"message": "out of memory"}})", answer), std::runtime_error);
  try {
    add_event(R"({"error": {"code": 7}})", answer);
    ADD_FAILURE() << "an error without a message is no answer";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(R"({"code":7})"));
  }
}

TEST(Conversation, StepsBack) {
  Conversation talk;
  talk.set_system("be short");
  talk.ask("1+1?");
  talk.answer("2", {});
  talk.ask("and 2+2?");
  talk.answer("5", {});
  EXPECT_TRUE(talk.take_back_answer());
  EXPECT_EQ(talk.messages().size(), 4u);
  talk.answer("4", {});
  EXPECT_TRUE(talk.undo());
  EXPECT_EQ(json_text(talk.messages()),
            R"([{"role":"system","content":"be short"},{"role":"user","content":"1+1?"},)"
            R"({"role":"assistant","content":"2"}])");
  EXPECT_TRUE(talk.undo());
  EXPECT_FALSE(talk.undo());
  EXPECT_FALSE(talk.take_back_answer());
}

TEST(Conversation, ResultsAnswerCallsInTheirOrder) {
  Conversation talk;
  EXPECT_FALSE(talk.add_result("x"));
  talk.ask("weather?");
  talk.answer("", {{"a", "first", "{}"}, {"b", "second", "{}"}});
  EXPECT_THAT(talk.open_calls(), ElementsAre("first", "second"));
  EXPECT_TRUE(talk.add_result("sun"));
  EXPECT_THAT(talk.open_calls(), ElementsAre("second"));
  EXPECT_TRUE(talk.add_result("rain"));
  EXPECT_FALSE(talk.add_result("snow"));
  EXPECT_EQ(talk.messages().back().at("tool_call_id").as_string(), "b");
}

TEST(ChatSettings, RefuseWhatNoSettingIs) {
  Settings settings;
  settings.set("temperature", "0.7");
  settings.set("max_tokens", "20");
  settings.set("thinking", "off");
  EXPECT_EQ(settings.text(), "temperature 0.7, max_tokens 20, thinking off");
  EXPECT_FALSE(settings.members().at("chat_template_kwargs").at("enable_thinking").as_bool());
  settings.set("temperature", "default");
  EXPECT_FALSE(settings.members().contains("temperature"));
  const auto problem = [&](const char* name, const char* value) -> std::string {
    try {
      settings.set(name, value);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(problem("temprature", "1"), HasSubstr("did you mean temperature?"));
  EXPECT_THAT(problem("temperature", "nan"), HasSubstr("from 0 to 2"));
  EXPECT_THAT(problem("max_tokens", "1.5"), HasSubstr("whole number"));
  EXPECT_THAT(problem("thinking", "maybe"), HasSubstr("on or off"));
}

TEST(ChatServer, AddressesAreToldFromFolders) {
  EXPECT_EQ(server_url("http://127.0.0.1:30000/v1/"), "http://127.0.0.1:30000");
  EXPECT_EQ(server_url("https://host/api/v1/chat/completions"), "https://host/api");
  EXPECT_EQ(server_url("localhost:8000"), "http://localhost:8000");
  EXPECT_EQ(server_url("runs/first"), "");
  EXPECT_EQ(server_url("Qwen/Qwen3-0.6B"), "");
  EXPECT_EQ(server_url("C:x"), "");
}

TEST(Screen, ProbabilitiesAreColoursAndNumbers) {
  EXPECT_EQ(painted_token("Paris", std::log(0.93), {}), "Paris(0.93)");
  const report::Terminal terminal{.is_live = true, .has_color = true, .has_unicode = true};
  EXPECT_EQ(painted_token("Paris", std::log(0.93), terminal),
            "\033[32mParis\033[2m\u2089\u2083\033[0m");
  EXPECT_EQ(painted_token("x\n", std::log(0.04), terminal), "\033[31mx\033[2m\u2084\033[0m\n");
}

/// What a screen writes for an answer of these parts.
std::string written(const report::Terminal& terminal, Screen::Look look,
                    const std::vector<std::string>& events) {
  std::string out;
  std::chrono::steady_clock::time_point now{};
  Screen screen(
      terminal, [&](std::string_view text) { out += text; },
      [&] { return now += std::chrono::milliseconds(500); });
  Answer answer;
  screen.begin(look);
  for (const std::string& each : events) {
    const AnswerPart part = add_event(each, answer);
    screen.add(part, answer);
  }
  screen.end(answer, false);
  return out;
}

const std::vector<std::string> kThoughtful{event(R"({"reasoning_content": "two words"})"),
                                           event(R"({"reasoning_content": " more"})"),
                                           event(R"({"content": "\n\nParis"})")};

TEST(Screen, ThoughtsAreOneLine) {
  const report::Terminal plain{.is_live = true};
  const std::string folded = written(plain, {}, kThoughtful);
  EXPECT_THAT(folded, HasSubstr("thought for 0.5 s, 3 words (/thoughts unfolds)\nParis\n"));
  EXPECT_THAT(folded, Not(HasSubstr("two words")));
  EXPECT_THAT(written(plain, {.unfolds_thoughts = true}, kThoughtful),
              HasSubstr("two words more\n(thought for 0.5 s, 3 words)\nParis\n"));
}

TEST(Screen, APipeHasTheAnswerAlone) {
  EXPECT_EQ(written({}, {}, kThoughtful), "Paris\n");
  EXPECT_EQ(written({}, {}, {event("{}", R"(, "finish_reason": "stop")")}), "\n");
  EXPECT_EQ(
      written(
          {}, {},
          {event(
              R"({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]})")}),
      "-> f({})\n");
}

TEST(Screen, TokensThatEndWithinACharacterWaitForItsEnd) {
  const auto token = [](const char* bytes) {
    return event("{}", std::string(R"(, "logprobs": {"content": [{"token": "?", "bytes": )") +
                           bytes + R"(, "logprob": 0}]})");
  };
  EXPECT_EQ(written({}, {.shows_probabilities = true}, {token("[195]"), token("[164]")}),
            "\xc3\xa4(1.00)\n");
}

TEST(Screen, NoTerminalObeysWhatAModelWrites) {
  const std::string orders = R"(\u001b[2J\u009b2J)", shown = "\\x1b[2J\\x9b2J";
  EXPECT_EQ(written({}, {}, {event("{\"content\": \"" + orders + "\"}")}), shown + "\n");
  EXPECT_THAT(written({.is_live = true}, {.unfolds_thoughts = true},
                      {event("{\"reasoning_content\": \"" + orders + "\"}")}),
              HasSubstr(shown));
  EXPECT_EQ(written({}, {},
                    {event(R"({"tool_calls": [{"index": 0, "function": {"name": ")" + orders +
                           R"(", "arguments": ")" + orders + "\"}}]}")}),
            "-> " + shown + "(" + shown + ")\n");
  EXPECT_EQ(painted_token("\xc2\x9b", 0, {}), "\\x9b(1.00)");
}

}  // namespace
}  // namespace slime::chat
