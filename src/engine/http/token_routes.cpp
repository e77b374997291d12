/// POST /inference/v1/generate: vLLM's token route, whole answers and streams.

#include <fmt/format.h>

#include <ctime>

#include "core/error.h"
#include "core/json.h"
#include "engine/http/abort_status.h"
#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/running_call.h"
#include "engine/http/token_route_request.h"
#include "engine/http/token_route_response.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::Task;

/// An entry of a log-prob has about fifty characters.
constexpr ResponseCost kCost{.token = 48, .log_prob = 128, .top = 128};

struct Answer {
  std::vector<TokenRouteChoice> choices;
  std::function<std::string(WeightVersion)> name_version;

  Answer(const ApiState& state, const TokenRouteCall& call)
      : name_version([&state](WeightVersion version) { return state.versions.name_of(version); }) {
    choices.reserve(call.requests.size());
    for (std::size_t i = 0; i < call.requests.size(); ++i)
      choices.emplace_back(call, i, state.model);
  }

  void add(const std::vector<IndexedUpdate>& updates) {
    for (const auto& [index, update] : updates) choices[index].add(update);
  }

  const FinishReason* find_failure() const {
    for (const TokenRouteChoice& choice : choices) {
      if (is_http_error(choice.totals().finish)) return &*choice.totals().finish;
    }
    return nullptr;
  }
};

/// {"request_id":"a","output_mode":"tokens"
std::string begin_object(const TokenRouteCall& call) {
  std::string out = "{\"request_id\":";
  append_json_string(out, call.request_id);
  out += call.returns_text ? ",\"output_mode\":\"text\"" : ",\"output_mode\":\"tokens\"";
  return out;
}

void append_prompt_ids(std::string& out, const std::vector<TokenId>& ids) {
  out += ",\"prompt_token_ids\":" + json_text(json::value_from(ids));
}

std::string whole_body(const TokenRouteCall& call, const std::vector<TokenId>& prompt_ids,
                       Answer& answer) {
  std::string out = begin_object(call);
  out += ",\"model\":";
  append_json_string(out, call.model);
  out += fmt::format(",\"created\":{},\"usage\":", std::time(nullptr));
  out += json_text(usage_of(answer.choices));
  if (call.returns_prompt_ids) append_prompt_ids(out, prompt_ids);
  if (call.num_prompt_logprobs >= 0) {
    out += ",\"prompt_logprobs\":";
    answer.choices.front().append_prompt_logprobs(out);
  }
  out += ",\"choices\":[";
  for (TokenRouteChoice& choice : answer.choices) {
    choice.append_to(out, answer.name_version);
    out += ',';
  }
  out.back() = ']';
  return out + "}";
}

Task<void> answer_whole(ApiState& state, HttpExchange& exchange, TokenRouteCall call,
                        std::vector<TokenId> prompt_ids) {
  Answer answer(state, call);
  RunningCall running(state.engine, exchange, state.responses, kCost, std::move(call.requests),
                      &state.metrics);
  while (!running.is_finished() && answer.find_failure() == nullptr) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    answer.add(updates);
  }
  HttpResponse response;
  if (const FinishReason* failure = answer.find_failure()) {
    response = openai_error_response(ApiError::of(*failure));
  } else {
    response.body = whole_body(call, prompt_ids, answer);
  }
  co_await exchange.send(std::move(response));
}

Task<void> answer_events(ApiState& state, HttpExchange& exchange, TokenRouteCall call,
                         std::vector<TokenId> prompt_ids) {
  Answer answer(state, call);
  RunningCall running(state.engine, exchange, state.responses, kCost, std::move(call.requests),
                      &state.metrics);
  bool has_begun = false;
  while (!running.is_finished() && exchange.is_connected()) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    answer.add(updates);
    const FinishReason* failure = answer.find_failure();
    if (!has_begun && failure != nullptr) {  // a refusal can still be a status
      HttpResponse response = openai_error_response(ApiError::of(*failure));
      co_await exchange.send(std::move(response));
      co_return;
    }
    if (!has_begun) co_await exchange.begin_events();
    if (failure != nullptr) {
      std::string frame = json_text(openai_error(ApiError::of(*failure)));
      co_await exchange.write_event(std::move(frame));
      co_await exchange.end_events();
      co_return;
    }
    for (TokenRouteChoice& choice : answer.choices) {
      if (!choice.has_news()) continue;
      std::string frame = begin_object(call);
      if (!has_begun && call.returns_prompt_ids) append_prompt_ids(frame, prompt_ids);
      has_begun = true;
      frame += ",\"choices\":[";
      choice.append_to(frame, answer.name_version);
      frame += ']';
      if (call.continuous_usage) frame += ",\"usage\":" + json_text(usage_of(answer.choices));
      frame += '}';
      co_await exchange.write_event(std::move(frame));
    }
    has_begun = true;
  }
  if (!exchange.is_connected()) co_return;
  if (call.includes_usage) {
    std::string frame = begin_object(call);
    frame += ",\"choices\":[],\"usage\":" + json_text(usage_of(answer.choices)) + "}";
    co_await exchange.write_event(std::move(frame));
  }
  co_await exchange.write_event("[DONE]");
  co_await exchange.end_events();
}

Task<void> generate(ApiState& state, HttpExchange& exchange) {
  std::optional<TokenRouteCall> call;
  HttpResponse refusal;
  try {
    call = co_await parse_call(state, exchange.request, parse_token_route_call);
  } catch (const ConfigError& error) {
    refusal = openai_error_response(ApiError::of(error));
  }
  if (!call) {
    co_await exchange.send(std::move(refusal));
    co_return;
  }
  std::vector<TokenId> prompt_ids;
  if (call->returns_prompt_ids) prompt_ids = call->requests.front().input_ids;
  if (call->streams) {
    co_await answer_events(state, exchange, std::move(*call), std::move(prompt_ids));
  } else {
    co_await answer_whole(state, exchange, std::move(*call), std::move(prompt_ids));
  }
}

}  // namespace

void add_token_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  routes.emplace_back("POST", "/inference/v1/generate", net::RouteClass::kInference,
                      [&state](HttpExchange& exchange) { return generate(state, exchange); });
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
