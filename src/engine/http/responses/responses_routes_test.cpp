/// /v1/responses over HTTP.

#include <gtest/gtest.h>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

constexpr const char* kPath = "/v1/responses";

/// The JSON of each event, whose name must be its type.
std::vector<json::value> events_of(std::string_view body) {
  std::vector<json::value> events;
  while (!body.empty()) {
    const std::size_t end = body.find("\n\n");
    const std::string_view frame = body.substr(0, end);
    const std::size_t data = frame.find("\ndata: ");
    EXPECT_TRUE(frame.starts_with("event: ") && data != std::string_view::npos) << frame;
    if (end == std::string_view::npos || data == std::string_view::npos) return events;
    events.push_back(parse_json(frame.substr(data + 7), "event"));
    EXPECT_EQ(std::string_view(events.back().at("type").get_string()), frame.substr(7, data - 7));
    body.remove_prefix(end + 2);
  }
  return events;
}

TEST(ResponsesRoute, AnswersWithTheItemsOfTheMessage) {
  TestServer test("Hi");
  const json::value reply = test.post(kPath, R"({"model":"m","instructions":"Be brief.",
      "input":[{"role":"user","content":[{"type":"input_text","text":"Q"}]}],"store":true,
      "max_output_tokens":9,"metadata":{"a":"b"},"reasoning":{"effort":"low"},
      "include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{},
      "text":{"format":{"type":"text"},"verbosity":"low"},"return_token_ids":true})");
  EXPECT_EQ(at(reply, "/object"), "response");
  EXPECT_EQ(at(reply, "/status"), "completed");
  EXPECT_EQ(at(reply, "/model"), "m");
  EXPECT_EQ(at(reply, "/store"), false);
  EXPECT_EQ(at(reply, "/output/0/content/0/text"), "Hi");
  EXPECT_EQ(at(reply, "/usage/output_tokens"), 3);
  EXPECT_EQ(at(reply, "/metadata/a"), "b");
  EXPECT_EQ(at(reply, "/metadata/weight_version"), "default");
  EXPECT_EQ(at(reply, "/metadata/token_ids"), json::value({72, 105, 127}));
  EXPECT_EQ(at(reply, "/metadata/token_logprobs"), parse_json("[-0.5,-1.0,-1.5]", "expected"));
  const GenerateRequest request = test.engine.requests().at(0);
  EXPECT_EQ(request.sampling.max_new_tokens, 9);
  EXPECT_EQ(json::value_from(request.input_ids), at(reply, "/metadata/prompt_token_ids"));
  const std::string prompt = test.tokenizer->decode(request.input_ids, false);
  EXPECT_NE(prompt.find(R"({"role":"system","content":"Be brief."})"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find(R"("reasoning_effort":"low")"), std::string::npos) << prompt;
}

TEST(ResponsesRoute, StreamsNamedEventsThatEndWithTheWholeAnswer) {
  TestServer test("Hi");
  const auto response = test.call("POST", kPath, R"({"input":"Q","stream":true,"new_field":1,
      "include":["message.output_text.logprobs"],"top_logprobs":1})");
  EXPECT_EQ(response.content_type, "text/event-stream");
  EXPECT_EQ(net::find_header(response.headers, "x-slime-ignored-fields"), "new_field");
  const auto events = events_of(response.body);
  ASSERT_GE(events.size(), 8u);
  std::string text;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(at(events[i], "/sequence_number"), static_cast<std::int64_t>(i));
    if (at(events[i], "/type") == "response.output_text.delta")
      text += at(events[i], "/delta").get_string();
  }
  EXPECT_EQ(text, "Hi");
  EXPECT_EQ(at(events.front(), "/type"), "response.created");
  EXPECT_EQ(at(events.back(), "/type"), "response.completed");
  EXPECT_EQ(at(events.back(), "/response/output/0/content/0/logprobs/1/token"), "i");
  EXPECT_EQ(at(events.back(), "/response/usage/total_tokens"),
            at(events.back(), "/response/usage/input_tokens").get_int64() + 3);
}

TEST(ResponsesRoute, CutByItsLimitIsIncomplete) {
  TestServer test("Hello");
  const json::value reply = test.post(kPath, R"({"input":"Q","max_output_tokens":2})");
  EXPECT_EQ(at(reply, "/status"), "incomplete");
  EXPECT_EQ(at(reply, "/incomplete_details/reason"), "max_output_tokens");
}

TEST(ResponsesRoute, RefusesWithCodesThatClientsKnow) {
  TestServer test("Hi");
  const std::string words = std::string(R"({"input":")") + std::string(2000, 'w') + "\"}";
  const std::tuple<std::string, int, const char*> cases[] = {
      {R"({"input":[{"type":"teleport"}]})", 400, "input[0].type is \\\"teleport\\\""},
      {R"({"input":"Q","previous_response_id":"resp_1"})", 404, "previous_response_not_found"},
      {R"({"input":"Q","background":true})", 400, "background"},
      {R"({"input":"Q","max_output_token":3})", 400, "did you mean max_output_tokens?"},
      {words, 400, "context_length_exceeded"},
  };
  for (const auto& [body, status, word] : cases) {
    const auto response = test.call("POST", kPath, body);
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_NE(response.body.find(word), std::string::npos) << response.body;
  }
  EXPECT_EQ(test.call("GET", "/v1/responses/resp_1").status, 404);
  EXPECT_EQ(test.call("POST", "/v1/responses/resp_1/cancel").status, 404);
  EXPECT_EQ(test.call("POST", "/v1/responses/compact", "{}").status, 501);
  EXPECT_EQ(test.call("GET", kPath).status, 404);
}

TEST(ResponsesRoute, CountsTheTokensOfAnInput) {
  TestServer test("Hi");
  const json::value reply = test.post(kPath, R"({"input":"Q"})");
  const json::value count = test.post("/v1/responses/input_tokens", R"({"input":"Q"})");
  EXPECT_EQ(at(count, "/input_tokens"), at(reply, "/usage/input_tokens"));
}

}  // namespace
}  // namespace slime::engine
