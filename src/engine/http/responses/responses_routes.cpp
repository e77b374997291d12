/// /v1/responses, as Codex and openai-agents use it. Nothing is stored.

#include <optional>
#include <utility>

#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/protocol_exchange.h"
#include "engine/http/responses/responses_answer.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses/";

Task<void> respond(ApiState& state, HttpExchange& exchange) {
  std::optional<ResponsesCall> call =
      co_await read_chat_call(state, exchange, parse_responses_call, openai_error_response);
  if (!call) co_return;
  const auto answer = make_responses_answer(*call, version_namer(state));
  ProtocolExchange form{.streams = call->request.form.streams,
                        .cost = kMessageCost,
                        .headers = ignored_fields_headers(call->request.ignored_fields),
                        .refuse = openai_error_response,
                        .session = call->chat.session.get()};
  co_await send_answer(state, exchange, *answer, std::move(call->chat.requests), std::move(form));
}

HttpResponse count(ApiState& state, const HttpRequest& request) {
  const auto read = [](const json::object& body, const ServedModel& model) {
    return read_responses_request(body, model).chat;
  };
  return count_tokens(state, request,
                      {.read = read,
                       .answer = {{"object", "response.input_tokens"}},
                       .refuse = openai_error_response});
}

/// Of every way to ask for an answer that was given before.
HttpResponse refuse_stored(const HttpRequest& request) {
  const std::string id = request.path.substr(kResponsesPath.size());
  return openai_error_response(ApiError(
      {.status = 404, .code = "response_not_found"},
      "Response with id '" + id + "' not found: this server keeps no answers (store is false)."));
}

HttpResponse refuse_compaction(const HttpRequest&) {
  return openai_error_response(
      ApiError({.status = 501}, "/v1/responses/compact is not supported: shorten the input"));
}

HttpResponse refuse_socket(const HttpRequest&) {
  return openai_error_response(
      ApiError({.status = 404}, "/v1/responses takes POST; there is no WebSocket"));
}

}  // namespace

void add_responses_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* method, std::string path, net::HttpHandler handler) {
    routes.emplace_back(method, std::move(path), net::RouteClass::kInference, std::move(handler));
  };
  add("POST", "/v1/responses",
      [&state](HttpExchange& exchange) { return respond(state, exchange); });
  add("GET", "/v1/responses", net::answer_with(refuse_socket));
  add("POST", "/v1/responses/input_tokens",
      answer_on(state.parse_threads,
                [&state](const HttpRequest& request) { return count(state, request); }));
  add("POST", "/v1/responses/compact", net::answer_with(refuse_compaction));
  for (const char* method : {"GET", "DELETE", "POST"})
    add(method, std::string(kResponsesPath) + "*", net::answer_with(refuse_stored));
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
