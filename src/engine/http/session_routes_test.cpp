#include <gtest/gtest.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "engine/chat/templates_for_tests.h"
#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

ApiOptions requiring_sessions() {
  ApiOptions options;
  options.requires_sessions = true;
  return options;
}

/// A server of a model whose turns end with <|im_end|>.
struct SessionServer {
  explicit SessionServer(std::string text = "hi there", ApiOptions options = {})
      : api(std::move(text), std::move(options)) {
    api.model.chat = std::make_shared<const ChatModel>(render_fn(kChatMl), "", api.tokenizer.get(),
                                                       ChatParsers{});
    api.engine.version = 7;
  }

  json::value open(const std::string& body = R"({"name": "s"})") {
    return api.post("/sessions", body);
  }
  json::value turns() {
    return parse_json(api.call("GET", "/sessions/s").body, "session").at("turns");
  }
  /// The answer to a request with these headers.
  net::HttpResponse ask(const std::string& path, const std::string& body,
                        net::HttpHeaders headers = {}) {
    auto response = net::http_call({.method = "POST",
                                    .url = api.server.url() + path,
                                    .body = body,
                                    .headers = std::move(headers)});
    EXPECT_TRUE(response);
    return response.value_or(net::HttpResponse{.status = 0});
  }

  TestServer api;
};

constexpr const char* kHelloBody = R"({"messages": [{"role": "user", "content": "hello"}])";

std::string hello_body(const std::string& more = "") { return kHelloBody + more + "}"; }

TEST(SessionRoutes, ATurnIsThereBeforeItsAnswerIsRead) {
  SessionServer server;
  const json::value opened = server.open();
  EXPECT_EQ(opened.at("name"), "s");
  const json::value answer = server.api.post("/sessions/s/v1/chat/completions", hello_body());
  EXPECT_EQ(at(answer, "/choices/0/message/content"), "hi there");
  EXPECT_TRUE(at(answer, "/choices/0/logprobs").is_null());  // recorded, not asked for
  const json::value turns = server.turns();
  ASSERT_EQ(turns.as_array().size(), 1u);
  const json::value& turn = turns.at(0);
  EXPECT_TRUE(turn.at("parent").is_null());
  EXPECT_EQ(turn.at("context_ids"), json::value_from(server.api.engine.requests_seen[0].input_ids));
  EXPECT_EQ(turn.at("output_ids").as_array().size(), 9u);  // <|im_end|> is one of them
  EXPECT_EQ(turn.at("output_ids").as_array().back(), kEndId);
  EXPECT_EQ(turn.at("output_log_probs").at(1), -1.0);
  EXPECT_EQ(at(turn, "/weight_versions/0/end"), 9);
  EXPECT_EQ(at(turn, "/weight_versions/0/version"), "7");
  EXPECT_EQ(turn.at("finish_reason"), "stop");
  EXPECT_EQ(at(turn, "/message/content"), "hi there");
}

TEST(SessionRoutes, TheNextPromptGoesOnFromTheTokensOfTheTurn) {
  SessionServer server;
  server.open();
  const std::string next =
      R"({"messages": [{"role": "user", "content": "hello"},)"
      R"( {"role": "assistant", "content": [{"type": "text", "text": " hi  there\n"}]},)"
      R"( {"role": "user", "content": "more"}]})";
  server.api.post("/sessions/s/v1/chat/completions", hello_body());
  server.api.post("/sessions/s/v1/chat/completions", next);
  const json::value turns = server.turns();
  ASSERT_EQ(turns.as_array().size(), 2u);
  EXPECT_EQ(at(turns, "/1/parent"), 1);
  const auto& prompt = server.api.engine.requests_seen[1].input_ids;
  EXPECT_EQ(at(turns, "/1/num_prompt_tokens"), prompt.size());
  // Its tokenizer has no token for a line break.
  EXPECT_EQ(server.api.tokenizer->decode(prompt, false),
            "<|im_start|>userhello<|im_end|><|im_start|>assistanthi there<|im_end|>"
            "<|im_start|>usermore<|im_end|><|im_start|>assistant");
}

TEST(SessionRoutes, EachProtocolIsServedInASession) {
  SessionServer server;
  server.open();
  const std::string messages = hello_body(R"(, "max_tokens": 20)");
  server.api.post("/sessions/s/v1/messages", messages);
  server.api.post("/sessions/s/v1/responses", R"({"input": "hello"})");
  EXPECT_EQ(server.turns().as_array().size(), 2u);
  EXPECT_GT(server.api.post("/sessions/s/v1/messages/count_tokens", hello_body())
                .at("input_tokens")
                .to_number<int>(),
            5);
  for (const char* stream : {"/v1/chat/completions", "/v1/messages", "/v1/responses"}) {
    const bool is_responses = std::string_view(stream) == "/v1/responses";
    const std::string body = is_responses ? R"({"input": "hello", "stream": true})"
                                          : hello_body(R"(, "max_tokens": 20, "stream": true)");
    EXPECT_EQ(server.ask(std::string("/sessions/s") + stream, body).status, 200);
  }
  EXPECT_EQ(server.turns().as_array().size(), 5u);
  EXPECT_EQ(server.api.call("GET", "/sessions/s/v1/models").status, 200);
}

TEST(SessionRoutes, AKeyOrAFieldMayNameTheSession) {
  SessionServer server;
  server.open();
  const std::string path = "/v1/chat/completions";
  const std::vector<std::pair<net::HttpHeaders, std::string>> ways{
      {{{"Authorization", "Bearer s"}}, hello_body()},
      {{{"x-api-key", "s"}}, hello_body()},
      {{{"x-slime-session", "s"}}, hello_body()},
      {{{"Authorization", "Bearer EMPTY"}}, hello_body(R"(, "user": "s")")},
      {{}, hello_body(R"(, "metadata": {"session_id": "s"})")}};
  for (const auto& [headers, body] : ways) EXPECT_EQ(server.ask(path, body, headers).status, 200);
  EXPECT_EQ(server.turns().as_array().size(), ways.size());
  EXPECT_EQ(server.ask(path, hello_body(), {{"Authorization", "Bearer other"}}).status, 200);
  EXPECT_EQ(server.turns().as_array().size(), ways.size());
}

TEST(SessionRoutes, AnUnknownNameIsRefusedAndSamplesNothing) {
  SessionServer server("hi", requiring_sessions());
  server.open();
  const auto expect_refusal = [&](const net::HttpResponse& response) {
    EXPECT_EQ(response.status, 401) << response.body;
    EXPECT_EQ(net::find_header(response.headers, "x-should-retry"), "false");
  };
  expect_refusal(server.ask("/v1/chat/completions", hello_body(), {{"Authorization", "Bearer x"}}));
  expect_refusal(server.ask("/sessions/x/v1/messages", hello_body(R"(, "max_tokens": 2)")));
  expect_refusal(server.ask("/v1/responses", R"({"input": "hello"})"));
  EXPECT_EQ(server.api.call("POST", "/v1/messages/count_tokens", hello_body()).status, 401);
  EXPECT_TRUE(server.api.engine.requests_seen.empty());
  EXPECT_EQ(
      server.ask("/v1/chat/completions", hello_body(), {{"Authorization", "Bearer s"}}).status,
      200);
}

TEST(SessionRoutes, AFullContextAndUsedUpTurnsAreAnsweredSoThatClientsStop) {
  SessionServer server;
  server.open(R"({"name": "s", "max_context_tokens": 20})");
  net::HttpResponse response = server.ask("/sessions/s/v1/chat/completions", hello_body());
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("maximum context length is 20 tokens"), std::string::npos);
  EXPECT_EQ(net::find_header(response.headers, "x-should-retry"), "false");
  server.open(R"({"name": "t", "max_turns": 1})");
  EXPECT_EQ(server.ask("/sessions/t/v1/chat/completions", hello_body()).status, 200);
  response = server.ask("/sessions/t/v1/chat/completions", hello_body());
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("turn_limit"), std::string::npos);
  EXPECT_EQ(net::find_header(response.headers, "x-should-retry"), "false");
}

TEST(SessionRoutes, DefaultsOfASessionAreUnderWhatARequestSays) {
  SessionServer server;
  server.open(R"({"name": "s", "sampling_defaults": {"temperature": 0.5, "max_new_tokens": 3}})");
  const json::value answer =
      server.api.post("/sessions/s/v1/chat/completions", hello_body(R"(, "max_tokens": 100)"));
  EXPECT_EQ(at(answer, "/choices/0/finish_reason"), "length");
  EXPECT_EQ(server.api.engine.requests_seen[0].sampling.temperature, 0.5);
  EXPECT_EQ(at(server.turns(), "/0/is_cut_off"), true);
}

TEST(SessionRoutes, NucleiAreRecordedWhereTheDefaultsAskForThem) {
  SessionServer server;
  server.open(R"({"name": "s", "sampling_defaults": {"top_p": 0.95, "max_new_tokens": 2,
                  "custom_params": {"return_top_p_token_ids": true}}})");
  server.api.post("/sessions/s/v1/chat/completions", hello_body());
  EXPECT_TRUE(server.api.engine.requests_seen[0].return_top_p_token_ids);
  EXPECT_FALSE(server.api.engine.requests_seen[0].return_top_p_log_probs);
  EXPECT_FALSE(server.api.engine.requests_seen[0].return_free_logprobs)
      << "not to be had with them";
  const json::value turn = server.turns().at(0);
  const json::array& output = turn.at("output_ids").as_array();
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(turn.at("output_top_p_token_counts"), json::value_from(std::vector<int>{2, 2}));
  EXPECT_EQ(turn.at("output_top_p_token_ids"),
            (json::array{output[0], 'z' + 0, output[1], 'z' + 0}));
  EXPECT_FALSE(turn.as_object().contains("output_top_p_log_probs"));
  server.open(R"({"name": "t"})");
  server.api.post("/sessions/t/v1/chat/completions", hello_body());
  EXPECT_FALSE(server.api.engine.requests_seen[1].return_top_p_token_ids);
  EXPECT_EQ(server.api
                .call("POST", "/sessions",
                      R"({"sampling_defaults": {"custom_params": {"return_top_k": true}}})")
                .status,
            400);
}

TEST(SessionRoutes, AWrongSessionIsRefusedByField) {
  SessionServer server;
  for (const char* body :
       {R"({"name": 3})", R"({"name": "a/b"})", R"({"max_turns": -1})", R"({"nam": "a"})",
        R"({"sampling_defaults": {"temperature": -1}})", R"({"sampling_defaults": {"temp": 1}})",
        R"({"sampling_defaults": {"max_new_tokens": 0}})", "[]"}) {
    EXPECT_EQ(server.api.call("POST", "/sessions", body).status, 400) << body;
  }
  server.open();
  EXPECT_EQ(server.api.call("POST", "/sessions", R"({"name": "s"})").status, 409);
  EXPECT_EQ(server.api.post("/sessions", "{}").at("name").as_string().size(), 32u);
  EXPECT_EQ(server.api.call("GET", "/sessions/other").status, 404);
  EXPECT_EQ(server.api.call("POST", "/sessions/s/v1/completions", "{}").status, 404);
  EXPECT_EQ(server.api.call("DELETE", "/sessions/s?wait_seconds=x").status, 400);
  EXPECT_EQ(server.api.call("DELETE", "/sessions/other").status, 404);
}

TEST(SessionRoutes, TheEndOfASessionWaitsForWhatIsUnderWay) {
  SessionServer server("");  // an answer that never ends
  server.open();
  std::thread client([&] {
    const net::HttpResponse response =
        server.ask("/sessions/s/v1/chat/completions", hello_body(R"(, "max_tokens": 900)"));
    EXPECT_EQ(response.status, 200);
  });
  EXPECT_TRUE(eventually([&] { return server.api.engine.num_open() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a token or more
  const net::HttpResponse ended = server.api.call("DELETE", "/sessions/s?wait_seconds=0");
  client.join();
  EXPECT_EQ(ended.status, 200);
  const json::value session = parse_json(ended.body, "session");
  EXPECT_EQ(session.at("num_running"), 0);
  ASSERT_EQ(session.at("turns").as_array().size(), 1u);
  EXPECT_EQ(at(session, "/turns/0/finish_reason"), "abort");
  EXPECT_EQ(at(session, "/turns/0/is_cut_off"), true);
  EXPECT_EQ(server.api.call("GET", "/sessions/s").status, 404);
}

/// A client that sends a request and is gone after so many bytes of the answer.
void leave_after(SessionServer& server, const std::string& body, std::size_t num_bytes) {
  namespace asio = boost::asio;
  asio::io_context context;
  asio::ip::tcp::socket socket(context);
  socket.connect({asio::ip::make_address("127.0.0.1"), server.api.server.port()});
  asio::write(socket, asio::buffer("POST /sessions/s/v1/chat/completions HTTP/1.1\r\n"
                                   "Host: localhost\r\nContent-Length: " +
                                   std::to_string(body.size()) + "\r\n\r\n" + body));
  std::string bytes(num_bytes, 0);
  if (num_bytes > 0) asio::read(socket, asio::buffer(bytes));
  EXPECT_TRUE(eventually([&] { return server.api.engine.num_open() == 1; }));
}

TEST(SessionRoutes, AnAnswerThatNobodyReadIsNoTurn) {
  SessionServer server("");
  server.open();
  leave_after(server, hello_body(R"(, "max_tokens": 900)"), 0);
  leave_after(server, hello_body(R"(, "max_tokens": 900, "stream": true)"), 400);
  EXPECT_TRUE(eventually([&] { return server.api.engine.num_open() == 0; }));
  EXPECT_TRUE(eventually([&] {
    return parse_json(server.api.call("GET", "/sessions/s").body, "").at("num_running") == 0;
  }));
  const json::value session = parse_json(server.api.call("GET", "/sessions/s").body, "session");
  EXPECT_TRUE(session.at("turns").as_array().empty());
  EXPECT_GT(session.at("num_forgotten_tokens").as_int64(), 0);
}

TEST(SessionRoutes, ManyAgentsAskInOneSessionAtOnce) {
  SessionServer server("done");
  server.open();
  std::vector<std::thread> agents;
  for (int agent = 0; agent < 8; ++agent) {
    agents.emplace_back([&server, agent] {
      std::string messages = R"([{"role": "user", "content": "a)" + std::to_string(agent) + R"("})";
      for (int turn = 0; turn < 4; ++turn) {
        const net::HttpResponse response =
            server.ask("/sessions/s/v1/chat/completions", R"({"messages": )" + messages + "]}");
        EXPECT_EQ(response.status, 200);
        messages +=
            R"(, {"role": "assistant", "content": "done"}, {"role": "user", "content": "x"})";
      }
    });
  }
  for (std::thread& agent : agents) agent.join();
  const json::value turns = server.turns();
  int num_roots = 0;
  for (const json::value& turn : turns.as_array()) num_roots += turn.at("parent").is_null() ? 1 : 0;
  EXPECT_EQ(turns.as_array().size(), 32u);
  EXPECT_EQ(num_roots, 8);
}

}  // namespace
}  // namespace slime::engine
