#include "engine/http/anthropic/anthropic_writer.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

using Event = text::MessageEvent;
using Kind = Event::Kind;

Event thought(std::string text) { return {.kind = Kind::kReasoning, .text = std::move(text)}; }
Event content(std::string text) { return {.kind = Kind::kContent, .text = std::move(text)}; }
Event call(std::string name) {
  return {.kind = Kind::kCall, .call = 0, .id = "call_1", .name = std::move(name)};
}
Event arguments(std::string text) {
  return {.kind = Kind::kArguments, .call = 0, .text = std::move(text)};
}
Event call_end() { return {.kind = Kind::kCallEnd, .call = 0}; }

/// A stream of events, each on its own, read as clients do: blocks must not overlap, and add up to
/// the whole message.
struct Answer {
  explicit Answer(const std::vector<Event>& events,
                  const AnthropicEnd& end = {"end_turn", {}, {}, {}}) {
    AnthropicForm form{.id = "x", .model = "m", .streams = true};
    AnthropicWriter writer(form);
    read(writer.begin({.prompt_tokens = 9, .cached_tokens = 4}));
    for (const Event& event : events) read(writer.add({&event, 1}));
    read(writer.finish(end));
    form.streams = false;
    AnthropicWriter silent(form);
    EXPECT_TRUE(silent.add(events).empty());
    EXPECT_TRUE(silent.finish(end).empty());
    message = silent.message();
    EXPECT_EQ(json::value(message.at("content")), json::value(blocks));
    EXPECT_EQ(types.front(), "message_start");
    EXPECT_EQ(types.back(), "message_stop");
  }

  void read(const std::vector<ServerEvent>& more) {
    for (const ServerEvent& event : more) {
      const json::value data = parse_json(event.data, "event");
      EXPECT_EQ(data.at("type").get_string(), event.name);
      types.push_back(event.name);
      if (event.name == "content_block_start") {
        EXPECT_FALSE(is_open);
        EXPECT_EQ(data.at("index"), static_cast<std::int64_t>(blocks.size()));
        blocks.push_back(data.at("content_block"));
        is_open = true;
      } else if (event.name == "content_block_delta") {
        EXPECT_TRUE(is_open);
        read_delta(data.at("delta").get_object());
      } else if (event.name == "content_block_stop") {
        if (blocks.back().at("type") == "tool_use")
          blocks.back().at("input") = parse_json(std::exchange(input, {}), "input");
        is_open = false;
      }
    }
  }
  void read_delta(const json::object& delta) {
    json::object& block = blocks.back().get_object();
    for (const char* member : {"text", "thinking", "signature"}) {
      if (const json::value* more = delta.if_contains(member)) {
        json::value& text = block.at(member);
        text = std::string(text.get_string()) + std::string(more->get_string());
      }
    }
    if (const json::value* more = delta.if_contains("partial_json")) input += more->get_string();
  }

  json::object message;
  json::array blocks;
  std::string input;
  bool is_open = false;
  std::vector<std::string> types;
};

TEST(AnthropicWriter, ThoughtsTextAndCallsAreBlocksInTheirOrder) {
  const Answer answer(
      {thought("H"), thought("m."), content("I look."), call("now"), arguments("{\"a\""),
       arguments(": 1}"), call_end()},
      {"tool_use", {}, {.prompt_tokens = 9, .cached_tokens = 4, .output_tokens = 7}, {}});
  const json::value message(answer.message);
  EXPECT_EQ(message.at("id"), "msg_x");
  EXPECT_EQ(message.at_pointer("/content/0/thinking"), "Hm.");
  EXPECT_FALSE(message.at_pointer("/content/0/signature").get_string().empty());
  EXPECT_EQ(message.at_pointer("/content/1"),
            parse_json(R"({"type":"text","text":"I look."})", "e"));
  EXPECT_EQ(message.at_pointer("/content/2"),
            parse_json(R"({"type":"tool_use","id":"toolu_1","name":"now","input":{"a":1}})", "e"));
  EXPECT_EQ(message.at("stop_reason"), "tool_use");
  EXPECT_EQ(message.at("usage"), parse_json(R"({"input_tokens":5,"cache_creation_input_tokens":0,
      "cache_read_input_tokens":4,"output_tokens":7})",
                                            "e"));
  EXPECT_EQ(answer.types[1], "content_block_start");
}

TEST(AnthropicWriter, AStopSequenceIsNamedAndTrainingDataComesLast) {
  const Answer answer({content("alpha ")},
                      {"stop_sequence", "STOP", {}, {{"token_ids", json::array{1, 2}}}});
  EXPECT_EQ(answer.message.at("stop_sequence"), "STOP");
  EXPECT_EQ(answer.message.at("slime"), parse_json(R"({"token_ids":[1,2]})", "e"));
}

TEST(AnthropicWriter, AnAnswerWithoutAnythingHasATextWithoutLetters) {
  const Answer answer({});
  EXPECT_EQ(json::value(answer.message.at("content")),
            parse_json(R"([{"type":"text","text":""}])", "e"));
}

TEST(AnthropicWriter, IllFormedArgumentsAreKept) {
  const Answer answer({call("f"), arguments("{\"a\": o"), arguments("ops"), call_end()});
  EXPECT_EQ(answer.message.at("content").at(0).at("input"),
            parse_json(R"({"a":null,"_raw":"{\"a\": oops"})", "e"));
}

TEST(ToolUseId, HasAnthropicsLettersAlone) {
  EXPECT_EQ(tool_use_id("call_0aB"), "toolu_0aB");
  EXPECT_EQ(tool_use_id("functions.f:0"), "toolu_functions_f_0");
  EXPECT_EQ(tool_use_id("toolu_1"), "toolu_1");
}

}  // namespace
}  // namespace slime::engine
