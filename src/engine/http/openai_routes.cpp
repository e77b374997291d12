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
#include "engine/served_adapters.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

/// A chunk is sent and forgotten; a whole answer is built from all of its objects at once.
constexpr ResponseCost kWholeCost{.token = 64, .log_prob = 600, .top = 400};
constexpr ResponseCost kStreamCost{.token = 32, .log_prob = 16, .top = 16};

/// `session`: null where the call belongs to none.
ProtocolExchange exchange_of(const OpenAiForm& form, const std::vector<std::string>& ignored_fields,
                             ChatSession* session) {
  return {.streams = form.streams,
          .cost = form.streams ? kStreamCost : kWholeCost,
          .headers = ignored_fields_headers(ignored_fields),
          .refuse = openai_error_response,
          .session = session};
}

Task<void> answer_chat(ApiState& state, HttpExchange& exchange) {
  std::optional<ChatCompletionsCall> call =
      co_await read_chat_call(state, exchange, parse_chat_completions, openai_error_response);
  if (!call) co_return;
  const auto answer = make_chat_answer(*call, version_namer(state));
  ProtocolExchange form = exchange_of(call->form, call->ignored_fields, call->chat.session.get());
  co_await send_answer(state, exchange, *answer, std::move(call->chat.requests), std::move(form));
}

Task<void> answer_completions(ApiState& state, HttpExchange& exchange) {
  std::optional<CompletionsCall> call =
      co_await read_call(state, exchange, parse_completions, openai_error_response);
  if (!call) co_return;
  const auto answer = make_completions_answer(*call, *state.model.tokenizer, version_namer(state));
  ProtocolExchange form = exchange_of(call->form, call->ignored_fields, nullptr);
  co_await send_answer(state, exchange, *answer, std::move(call->requests), std::move(form));
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

json::object adapter_card(const ApiState& state, const LoadedAdapter& adapter) {
  json::object card = model_card(state);
  card["id"] = adapter.name;
  card["root"] = adapter.path;
  card["parent"] = state.model.name;
  return card;
}

HttpResponse list_models(const ApiState& state, const HttpRequest&) {
  json::array cards{model_card(state)};
  if (state.model.adapters != nullptr) {
    for (const auto& adapter : state.model.adapters->all())
      cards.push_back(adapter_card(state, *adapter));
  }
  return {.body = json_text(json::value{{"object", "list"}, {"data", std::move(cards)}})};
}

constexpr std::string_view kModels = "/v1/models/";

HttpResponse retrieve_model(const ApiState& state, const HttpRequest& request) {
  const std::string name = request.path.substr(kModels.size());
  if (name == state.model.name) return {.body = json_text(model_card(state))};
  if (state.model.adapters != nullptr) {
    if (const auto adapter = state.model.adapters->find(name))
      return {.body = json_text(adapter_card(state, *adapter))};
  }
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
                      [&state](HttpExchange& exchange) { return answer_chat(state, exchange); });
  routes.emplace_back(
      "POST", "/v1/completions", RouteClass::kInference,
      [&state](HttpExchange& exchange) { return answer_completions(state, exchange); });
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
