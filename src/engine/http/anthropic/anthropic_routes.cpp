/// /v1/messages and /v1/messages/count_tokens, as Anthropic's clients and Claude Code use them.

#include <optional>
#include <utility>

#include "engine/http/anthropic/anthropic_answer.h"
#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/generate_request.h"
#include "engine/http/protocol_exchange.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

std::string make_request_id() { return "req_" + make_rid(); }

Task<void> send_message(ApiState& state, HttpExchange& exchange) {
  const std::string id = make_request_id();
  const auto refuse = [id](const ApiError& error) { return anthropic_error_response(error, id); };
  std::optional<AnthropicCall> call =
      co_await read_chat_call<AnthropicCall>(state, exchange, parse_anthropic_call, refuse);
  if (!call) co_return;
  const auto answer = make_anthropic_answer(*call, version_namer(state), id);
  ProtocolExchange form{.streams = call->request.form.streams,
                        .cost = kMessageCost,
                        .headers = ignored_fields_headers(call->request.ignored_fields),
                        .refuse = refuse,
                        .session = call->chat.session.get()};
  form.headers.emplace_back("request-id", id);
  co_await send_answer(state, exchange, *answer, std::move(call->chat.requests), std::move(form));
}

HttpResponse count(ApiState& state, const HttpRequest& request) {
  const auto read = [](const json::object& body, const ServedModel& model) {
    return read_anthropic_request(body, model, /*counts=*/true).chat;
  };
  const auto refuse = [](const ApiError& error) {
    return anthropic_error_response(error, make_request_id());
  };
  return count_tokens(state, request, {.read = read, .answer = {}, .refuse = refuse});
}

}  // namespace

void add_anthropic_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  routes.emplace_back("POST", "/v1/messages", net::RouteClass::kInference,
                      [&state](HttpExchange& exchange) { return send_message(state, exchange); });
  routes.emplace_back("POST", "/v1/messages/count_tokens", net::RouteClass::kInference,
                      answer_on(state.parse_threads, [&state](const HttpRequest& request) {
                        return count(state, request);
                      }));
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
