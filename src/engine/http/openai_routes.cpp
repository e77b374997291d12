/// /v1/chat/completions, /v1/completions and /v1/models, as the official clients use them.

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/abort_status.h"
#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/generate_request.h"
#include "engine/http/openai_request.h"
#include "engine/http/openai_response.h"
#include "engine/http/request_body.h"
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

using ParseFn = OpenAiCall (*)(const json::object&, const ServedModel&);

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Reply {
  std::string id;
  std::int64_t created = unix_seconds();
  std::vector<OpenAiChoice> choices;

  Reply(const OpenAiCall& call, const ServedModel& model)
      : id((call.is_chat ? "chatcmpl-" : "cmpl-") + make_rid()) {
    choices.reserve(call.requests.size());
    for (std::size_t i = 0; i < call.requests.size(); ++i)
      choices.emplace_back(call, i, *model.tokenizer);
  }

  void add(ApiState& state, const std::vector<IndexedUpdate>& updates) {
    for (const auto& [index, update] : updates) {
      choices[index].add(update);
      if (update.finish) state.counters.add(update, choices[index].num_output());
    }
  }

  const FinishReason* find_failure() const {
    for (const OpenAiChoice& choice : choices) {
      if (is_http_error(choice.finish())) return &*choice.finish();
    }
    return nullptr;
  }

  json::object envelope(const OpenAiCall& call, bool is_chunk) const {
    const char* kind = !call.is_chat ? "text_completion"
                       : is_chunk    ? "chat.completion.chunk"
                                     : "chat.completion";
    return {{"id", id}, {"object", kind}, {"created", created}, {"model", json::value(call.model)}};
  }
};

/// A chunk is sent and forgotten; a whole reply is built from all of its objects at once.
constexpr ResponseCost kWholeCost{.token = 64, .log_prob = 600, .top = 400};
constexpr ResponseCost kStreamCost{.token = 32, .log_prob = 16, .top = 16};

/// The version whose weights made the choice's last token.
WeightVersion version_of(const ApiState& state, const OpenAiChoice& choice) {
  const auto& runs = choice.last_update().versions;
  return runs.empty() ? state.engine.weight_version() : runs.back().version;
}

Task<void> answer_whole(ApiState& state, HttpExchange& exchange, OpenAiCall call) {
  Reply reply(call, state.model);
  RunningCall running(state.engine, exchange, state.responses, kWholeCost,
                      std::move(call.requests));
  while (!running.is_finished()) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    reply.add(state, updates);
  }
  if (const FinishReason* failure = reply.find_failure()) {
    HttpResponse response = openai_error_response(ApiError::of(*failure));
    co_await exchange.send(std::move(response));
    co_return;
  }
  WeightVersion newest = 0;
  json::object body = reply.envelope(call, false);
  json::array choices;
  for (const OpenAiChoice& choice : reply.choices) {
    const WeightVersion version = version_of(state, choice);
    newest = std::max(newest, version);
    choices.push_back(choice.whole(state.versions.name_of(version)));
  }
  body["choices"] = std::move(choices);
  body["usage"] = usage_of(call, reply.choices);
  body["metadata"] = {{"weight_version", state.versions.name_of(newest)}};
  HttpResponse response{.body = json_text(body)};
  co_await exchange.send(std::move(response));
}

std::string to_chunk(const OpenAiCall& call, const Reply& reply, json::array choices,
                     json::value usage) {
  json::object chunk = reply.envelope(call, true);
  chunk["choices"] = std::move(choices);
  if (call.includes_usage) chunk["usage"] = std::move(usage);
  return json_text(chunk);
}

Task<void> answer_events(ApiState& state, HttpExchange& exchange, OpenAiCall call) {
  Reply reply(call, state.model);
  RunningCall running(state.engine, exchange, state.responses, kStreamCost,
                      std::move(call.requests));
  bool has_begun = false;
  while (!running.is_finished() && exchange.is_connected()) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    reply.add(state, updates);
    const FinishReason* failure = reply.find_failure();
    if (!has_begun) {
      if (failure != nullptr) {  // before the first chunk a refusal can still be a status
        HttpResponse response = openai_error_response(ApiError::of(*failure));
        co_await exchange.send(std::move(response));
        co_return;
      }
      co_await exchange.begin_events();
      has_begun = true;
      for (std::size_t i = 0; call.is_chat && i < reply.choices.size(); ++i) {
        std::string chunk = to_chunk(call, reply, {reply.choices[i].first_chunk()}, nullptr);
        co_await exchange.write_event(std::move(chunk));
      }
    }
    if (failure != nullptr) {
      std::string frame = json_text(openai_error(ApiError::of(*failure)));
      co_await exchange.write_event(std::move(frame));
      break;
    }
    for (OpenAiChoice& choice : reply.choices) {
      std::optional<json::object> part = choice.next_chunk();
      if (!part) continue;
      std::string chunk = to_chunk(call, reply, {std::move(*part)}, nullptr);
      co_await exchange.write_event(std::move(chunk));
    }
  }
  if (!exchange.is_connected()) co_return;
  if (call.includes_usage && running.is_finished()) {
    std::string chunk = to_chunk(call, reply, {}, usage_of(call, reply.choices));
    co_await exchange.write_event(std::move(chunk));
  }
  co_await exchange.write_event("[DONE]");
  co_await exchange.end_events();
}

Task<void> answer(ApiState& state, ParseFn parse, HttpExchange& exchange) {
  std::optional<OpenAiCall> call;
  HttpResponse refusal;
  try {
    call = co_await parse_call(state, exchange.request, parse,
                               /*is_apart=*/parse == parse_chat_call);
  } catch (const ConfigError& error) {
    refusal = openai_error_response(ApiError::of(error));
  }
  if (!call) {
    co_await exchange.send(std::move(refusal));
    co_return;
  }
  if (call->streams) {
    co_await answer_events(state, exchange, std::move(*call));
  } else {
    co_await answer_whole(state, exchange, std::move(*call));
  }
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
  const auto add = [&](const char* path, ParseFn parse) {
    routes.emplace_back(
        "POST", path, RouteClass::kInference,
        [&state, parse](HttpExchange& exchange) { return answer(state, parse, exchange); });
  };
  add("/v1/chat/completions", parse_chat_call);
  add("/v1/completions", parse_completion_call);
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
