#pragma once

/// For tests: the HTTP side over a fake engine, and a client.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "engine/chat/chat_model.h"
#include "engine/http/fake_engine.h"
#include "engine/http/server.h"
#include "net/http_client.h"

namespace slime::engine {

inline std::string render_as_json(const json::array& messages, const json::object& options) {
  return json_text(messages) + json_text(options);
}

/// A template that takes what render_as_json() does; once it is known, `render` is asked.
inline std::shared_ptr<const ChatModel> make_test_chat(const text::Tokenizer& tokenizer,
                                                       RenderChatFn render,
                                                       const ChatParsers& parsers = {}) {
  const auto is_made = std::make_shared<std::atomic<bool>>(false);
  auto chat = std::make_shared<const ChatModel>(
      [is_made, render = std::move(render)](const json::array& messages,
                                            const json::object& options) {
        return *is_made ? render(messages, options) : render_as_json(messages, options);
      },
      "", &tokenizer, parsers);
  *is_made = true;
  return chat;
}

/// A server over a fake engine that answers everything with `text`.
struct TestServer {
  /// `model` may be changed until the first request.
  explicit TestServer(std::string text, ApiOptions options = {})
      : tokenizer(make_ascii_tokenizer()),
        engine(std::move(text)),
        model{.name = "ascii",
              .path = SLIME_SOURCE_DIR "/tests/fixtures/models/llama",
              .dtype = "float32",
              .model_type = "fake",
              .architectures = {"FakeForCausalLM"},
              .context_length = 1000,
              .vocab_size = 128,
              .sampling_defaults = {},
              .tokenizer = tokenizer.get(),
              .longest_token_bytes = longest_token_bytes(*tokenizer),
              .chat = make_test_chat(*tokenizer, render_as_json),
              .weight_roots = {SLIME_SOURCE_DIR "/tests/fixtures/models"}},
        server(engine, model, {.port = 0}, std::move(options)) {
    server.start();
  }

  net::HttpResponse call(std::string method, std::string path, std::string body = "") {
    auto response = net::http_call(
        {.method = std::move(method), .url = server.url() + path, .body = std::move(body)});
    EXPECT_TRUE(response) << response.error().message;
    return response.value_or(net::HttpResponse{.status = 0});
  }
  json::value post(std::string path, std::string body) {
    const net::HttpResponse response = call("POST", std::move(path), std::move(body));
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_json(response.body, "response");
  }

  std::unique_ptr<text::Tokenizer> tokenizer;
  FakeEngine engine;
  ServedModel model;
  ApiServer server;
};

/// The JSON of each frame but the closing [DONE], which must be there.
inline std::vector<json::value> frames_of(std::string_view body) {
  std::vector<json::value> frames;
  bool is_done = false;
  while (!body.empty()) {
    const std::size_t end = body.find("\n\n");
    EXPECT_TRUE(body.starts_with("data: ")) << body;
    if (end == std::string_view::npos || !body.starts_with("data: ")) return frames;
    const std::string_view data = body.substr(6, end - 6);
    is_done = data == "[DONE]";
    if (!is_done) frames.push_back(parse_json(data, "frame"));
    body.remove_prefix(end + 2);
  }
  EXPECT_TRUE(is_done);
  return frames;
}

inline const json::value& at(const json::value& value, std::string_view pointer) {
  return value.at_pointer(pointer);
}

/// Polls until `holds`, for at most ten seconds.
template <typename Condition>
bool eventually(Condition holds) {
  for (int i = 0; i < 1000 && !holds(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

}  // namespace slime::engine
