/// /v1/chat/completions, /v1/completions and /v1/models, as the official clients use them.

#include <optional>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/chat_completions_answer.h"
#include "engine/http/completions_answer.h"
#include "engine/http/parse_output.h"
#include "engine/http/protocol_exchange.h"
#include "engine/http/running_call.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

/// A chunk is sent and forgotten; a whole answer is built from all of its objects at once.
constexpr ResponseCost kWholeCost{.token = 64, .log_prob = 600, .top = 400};
constexpr ResponseCost kStreamCost{.token = 32, .log_prob = 16, .top = 16};

void add(ApiState& state, OpenAiAnswer& answer, RunningCall& running,
         const std::vector<IndexedUpdate>& updates) {
  for (const auto& [index, update] : updates) {
    answer.add(index, update);
    if (update.finish) state.counters.add(update, answer.num_output(index));
  }
  for (const std::size_t index : answer.take_stops()) running.abort(index);
}

Task<void> answer_whole(ApiState& state, HttpExchange& exchange, OpenAiAnswer& answer,
                        std::vector<GenerateRequest> requests, net::HttpHeaders headers) {
  RunningCall running(state.engine, exchange, state.responses, kWholeCost, std::move(requests));
  while (!running.is_finished()) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    add(state, answer, running, updates);
  }
  HttpResponse response;
  if (const FinishReason* failure = answer.failure()) {
    response = openai_error_response(ApiError::of(*failure));
  } else {
    response.body = json_text(answer.whole());
  }
  response.headers = std::move(headers);
  co_await exchange.send(std::move(response));
}

Task<void> write_all(HttpExchange& exchange, std::vector<std::string> chunks) {
  for (std::string& chunk : chunks) co_await exchange.write_event(std::move(chunk));
}

Task<void> answer_events(ApiState& state, HttpExchange& exchange, OpenAiAnswer& answer,
                         std::vector<GenerateRequest> requests, net::HttpHeaders headers) {
  RunningCall running(state.engine, exchange, state.responses, kStreamCost, std::move(requests));
  bool has_begun = false;
  while (!running.is_finished() && exchange.is_connected()) {
    const std::vector<IndexedUpdate> updates = co_await running.next(kKeepAlive);
    add(state, answer, running, updates);
    const FinishReason* failure = answer.failure();
    if (!has_begun && failure != nullptr) {  // a refusal can still be a status
      HttpResponse response = openai_error_response(ApiError::of(*failure));
      co_await exchange.send(std::move(response));
      co_return;
    }
    if (!std::exchange(has_begun, true)) {
      co_await exchange.begin_events(headers);
      co_await write_all(exchange, answer.first_chunks());
    }
    if (failure != nullptr) {  // no [DONE] after an error
      std::string frame = json_text(openai_error(ApiError::of(*failure)));
      co_await exchange.write_event(std::move(frame));
      co_await exchange.end_events();
      co_return;
    }
    if (updates.empty()) co_await exchange.write_comment("ping");
    co_await write_all(exchange, answer.next_chunks());
  }
  if (!exchange.is_connected()) co_return;
  if (std::optional<std::string> usage = answer.usage_chunk())
    co_await exchange.write_event(*std::move(usage));
  co_await exchange.write_event("[DONE]");
  co_await exchange.end_events();
}

/// The answer to a call that was parsed; `call` lives as long as it does.
Task<void> answer_call(ApiState& state, HttpExchange& exchange, ChatCompletionsCall& call) {
  const std::unique_ptr<OpenAiAnswer> answer = make_chat_answer(call, version_namer(state));
  const auto how = call.form.streams ? answer_events : answer_whole;
  co_await how(state, exchange, *answer, std::move(call.chat.requests),
               ignored_fields_headers(call.ignored_fields));
}

Task<void> answer_call(ApiState& state, HttpExchange& exchange, CompletionsCall& call) {
  const std::unique_ptr<OpenAiAnswer> answer =
      make_completions_answer(call, *state.model.tokenizer, version_namer(state));
  const auto how = call.form.streams ? answer_events : answer_whole;
  co_await how(state, exchange, *answer, std::move(call.requests),
               ignored_fields_headers(call.ignored_fields));
}

template <typename Call>
Task<void> answer(ApiState& state, Call (*parse)(const json::object&, const ServedModel&),
                  bool is_apart, HttpExchange& exchange) {
  std::optional<Call> call =
      co_await read_call(state, exchange, parse, openai_error_response, is_apart);
  if (call) co_await answer_call(state, exchange, *call);
}

json::object model_card(const ApiState& state) {
  const ServedModel& model = state.model;
  return {{"id", model.name},
          {"object", "model"},
          {"created", state.start_unix_seconds},
          {"owned_by", "slime"},
          {"root", model.name},
          {"parent", nullptr},
          {"max_model_len", model.context_length}};
}

HttpResponse list_models(const ApiState& state, const HttpRequest&) {
  return {.body =
              json_text(json::value{{"object", "list"}, {"data", json::array{model_card(state)}}})};
}

constexpr std::string_view kModels = "/v1/models/";

HttpResponse retrieve_model(const ApiState& state, const HttpRequest& request) {
  const std::string name = request.path.substr(kModels.size());
  if (name == state.model.name) return {.body = json_text(model_card(state))};
  return openai_error_response(ApiError(
      {.status = 404, .code = "model_not_found", .param = "model"},
      "The model `" + name + "` does not exist; this server has `" + state.model.name + "`."));
}

HttpResponse refuse_embeddings(const HttpRequest&) {
  return openai_error_response(ApiError(
      {.status = 501}, "embeddings are not supported: this engine generates text and tokens"));
}

}  // namespace

void add_openai_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  routes.emplace_back("POST", "/v1/chat/completions", RouteClass::kInference,
                      [&state](HttpExchange& exchange) {
                        return answer(state, parse_chat_completions, true, exchange);
                      });
  routes.emplace_back("POST", "/v1/completions", RouteClass::kInference,
                      [&state](HttpExchange& exchange) {
                        return answer(state, parse_completions, false, exchange);
                      });
  const auto add_parse = [&](const char* path,
                             json::object (*parse)(const json::object&, const ServedModel&)) {
    routes.emplace_back("POST", path, RouteClass::kInference,
                        answer_on(state.parse_threads, [&state, parse](const HttpRequest& request) {
                          return json_response(parse(parse_body(request.body), state.model));
                        }));
  };
  add_parse("/parse_function_call", parse_function_call);
  add_parse("/separate_reasoning", separate_reasoning);
  const auto add_get = [&](std::string path,
                           HttpResponse (*answer)(const ApiState&, const HttpRequest&)) {
    routes.emplace_back("GET", std::move(path), RouteClass::kInference,
                        net::answer_with([&state, answer](const HttpRequest& request) {
                          return answer(state, request);
                        }));
  };
  routes.emplace_back("POST", "/v1/embeddings", RouteClass::kInference,
                      net::answer_with(refuse_embeddings));
  add_get("/v1/models", list_models);
  add_get(std::string(kModels) + "*", retrieve_model);
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
