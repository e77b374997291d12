/// /v1/messages over HTTP.

#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

constexpr const char* kPath = "/v1/messages";
constexpr const char* kAsk = R"("messages":[{"role":"user","content":"Q"}])";

std::string with(std::string_view fields) {
  return "{" + std::string(kAsk) + "," + std::string(fields) + "}";
}

TEST(AnthropicRoute, AnswersWithBlocks) {
  TestServer test("Hi");
  const json::value reply = test.post(kPath, with(R"("model":"m","max_tokens":9,"system":"S",
      "temperature":0.5,"top_k":4,"metadata":{"user_id":"u"},"thinking":{"type":"disabled"},
      "return_token_ids":true)"));
  EXPECT_EQ(at(reply, "/type"), "message");
  EXPECT_EQ(at(reply, "/content"), parse_json(R"([{"type":"text","text":"Hi"}])", "expected"));
  EXPECT_EQ(at(reply, "/stop_reason"), "end_turn");
  EXPECT_EQ(at(reply, "/usage/output_tokens"), 3);
  EXPECT_EQ(at(reply, "/slime/token_ids"), json::value({72, 105, 127}));
  EXPECT_EQ(at(reply, "/slime/weight_version"), "default");
  const GenerateRequest request = test.engine.requests().at(0);
  EXPECT_EQ(request.sampling.max_new_tokens, 9);
  EXPECT_EQ(request.sampling.top_k, 4);
  const std::string prompt = test.tokenizer->decode(request.input_ids, false);
  EXPECT_NE(prompt.find(R"("enable_thinking":false)"), std::string::npos) << prompt;
  EXPECT_EQ(at(test.post("/v1/messages/count_tokens", with(R"("system":"S",
      "thinking":{"type":"disabled"})")),
               "/input_tokens"),
            at(reply, "/usage/input_tokens"));
}

TEST(AnthropicRoute, NamesWhyItStopped) {
  TestServer test("Hello");
  const json::value by_text = test.post(kPath, with(R"("max_tokens":9,"stop_sequences":["lo"])"));
  EXPECT_EQ(at(by_text, "/stop_reason"), "stop_sequence");
  EXPECT_EQ(at(by_text, "/stop_sequence"), "lo");
  EXPECT_EQ(at(by_text, "/content/0/text"), "Hel");
  EXPECT_EQ(at(test.post(kPath, with(R"("max_tokens":2)")), "/stop_reason"), "max_tokens");
}

TEST(AnthropicRoute, StreamsBlocksBetweenTheStartAndTheStopOfTheMessage) {
  TestServer test("Hi");
  const auto response = test.call("POST", "/v1/messages?beta=true",
                                  with(R"("max_tokens":9,"stream":true,"return_token_ids":true)"));
  EXPECT_TRUE(net::find_header(response.headers, "request-id").has_value());
  std::vector<std::string> names;
  std::string_view rest = response.body;
  for (std::size_t begin; (begin = rest.find("event: ")) != std::string_view::npos;) {
    rest.remove_prefix(begin + 7);
    names.emplace_back(rest.substr(0, rest.find('\n')));
  }
  ASSERT_GE(names.size(), 6u);
  EXPECT_EQ(names.front(), "message_start");
  EXPECT_EQ(names[1], "content_block_start");
  EXPECT_EQ(names.back(), "message_stop");
  EXPECT_NE(response.body.find(R"({"type":"message_stop","slime":{"weight_version":"default",)"
                               R"("token_ids":[72,105,127])"),
            std::string::npos)
      << response.body;
}

TEST(AnthropicRoute, ACallIsAToolUse) {
  TestServer test(R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)");
  test.model.chat = make_test_chat(*test.tokenizer, render_as_json, {"qwen25", "none"});
  const json::value reply = test.post(kPath, with(R"("max_tokens":99,
      "tools":[{"name":"f","input_schema":{"type":"object"}}])"));
  EXPECT_EQ(at(reply, "/stop_reason"), "tool_use");
  EXPECT_EQ(at(reply, "/content/0/name"), "f");
  EXPECT_EQ(at(reply, "/content/0/input"), parse_json(R"({"a":1})", "expected"));
  EXPECT_TRUE(std::string_view(at(reply, "/content/0/id").get_string()).starts_with("toolu_"));
}

TEST(AnthropicRoute, RefusesInItsForm) {
  TestServer test("Hi");
  const std::pair<std::string, const char*> cases[] = {
      {R"({"max_tokens":9,"messages":[]})", "messages must be a list"},
      {std::string("{") + kAsk + "}", "max_tokens is missing"},
      {with(R"("max_tokens":9,"tool_choice":{"type":"tool","name":"fly"})"), "fly"},
      {with(R"("max_tokens":9,"mcp_servers":[{"url":"x"}])"), "mcp_servers"},
      {with(R"("max_tokens":9,"system":")" + std::string(2000, 'w') + "\""), "prompt is too long"},
      {"[]", "JSON object"},
  };
  for (const auto& [body, word] : cases) {
    const auto response = test.call("POST", kPath, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const json::value reply = parse_json(response.body, "reply");
    EXPECT_EQ(at(reply, "/type"), "error");
    EXPECT_EQ(at(reply, "/error/type"), "invalid_request_error");
    EXPECT_NE(at(reply, "/error/message").get_string().find(word), std::string::npos)
        << response.body;
  }
}

}  // namespace
}  // namespace slime::engine
