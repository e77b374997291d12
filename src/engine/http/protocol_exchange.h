#pragma once

/// One call of a protocol, from its body to its answer, whole or as a stream.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/http/api_error.h"
#include "engine/http/api_state.h"
#include "engine/http/openai_answer.h"
#include "engine/http/protocol_answer.h"
#include "engine/http/recorded_turns.h"
#include "engine/http/response_memory.h"
#include "engine/http/session_access.h"

namespace slime::engine {

/// A stream that is silent for longer gets a comment: proxies close it otherwise.
inline constexpr std::chrono::seconds kKeepAlive{15};

/// Of protocols whose events repeat what the answer holds, and whose last one has all of it.
inline constexpr ResponseCost kMessageCost{.token = 96, .log_prob = 600, .top = 400};

struct ProtocolExchange {
  bool streams = false;
  ResponseCost cost;
  net::HttpHeaders headers;  // of the answer
  /// How the protocol refuses a request.
  std::function<net::HttpResponse(const ApiError&)> refuse;
  ChatSession* session = nullptr;  // that records the turn; outlives the exchange
};

/// `answer` outlives the coroutine.
net::Task<void> send_answer(ApiState& state, net::HttpExchange& exchange, ProtocolAnswer& answer,
                            std::vector<GenerateRequest> requests, ProtocolExchange form);

/// The request's body as a call; nothing after a refusal was sent.
template <typename Call>
net::Task<std::optional<Call>> read_call(ApiState& state, net::HttpExchange& exchange,
                                         Call (*parse)(const json::object&, const ServedModel&),
                                         std::function<net::HttpResponse(const ApiError&)> refuse) {
  std::optional<Call> call;
  net::HttpResponse refusal;
  try {
    call = co_await parse_call(state, exchange.request, parse);
  } catch (const ConfigError& error) {
    refusal = refuse(ApiError::of(error));
  }
  if (!call) co_await exchange.send(std::move(refusal));
  co_return call;
}

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

template <typename Call>
using ChatParser = Call (*)(const json::object&, const ServedModel&, std::shared_ptr<ChatSession>);

/// The same for a chat, which may belong to a session. On a thread of its own, as chat templates run,
/// which are programs.
template <typename Call>
net::Task<std::optional<Call>> read_chat_call(
    ApiState& state, net::HttpExchange& exchange, ChatParser<Call> parse,
    std::function<net::HttpResponse(const ApiError&)> refuse) {
  std::optional<Call> call;
  net::HttpResponse refusal;
  std::function<Call()> work = [&state, parse, headers = exchange.request.headers,
                                text = std::exchange(exchange.request.body, {})] {
    if (std::chrono::steady_clock::now() > state.ends_at.load())
      throw ConfigError("the server is stopping");
    const json::object body = parse_body(text);
    const std::shared_ptr<ChatSession> session = session_of(state, headers, body);
    return parse(body, session == nullptr ? state.model : session->model(), session);
  };
  try {
    call = co_await compute_on(state.parse_threads, std::move(work));
  } catch (const ConfigError& error) {
    refusal = refuse(ApiError::of(error));
    refusal.headers.push_back(kNoRetry);  // it would be refused again
  }
  if (!call) co_await exchange.send(std::move(refusal));
  co_return call;
}

#pragma GCC diagnostic pop

/// Request and reply form of a protocol's token-count route.
struct TokenCountForm {
  std::function<ChatRequest(const json::object& body, const ServedModel& model)> read;
  json::object answer;  // besides input_tokens
  std::function<net::HttpResponse(const ApiError&)> refuse;
};

/// The length of the rendered prompt: the usage of the same chat.
net::HttpResponse count_tokens(const ApiState& state, const net::HttpRequest& request,
                               TokenCountForm form);

VersionNamer version_namer(const ApiState& state);

/// x-slime-ignored-fields, where there are any.
net::HttpHeaders ignored_fields_headers(const std::vector<std::string>& names);

}  // namespace slime::engine
