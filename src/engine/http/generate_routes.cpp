/// POST /generate: SGLang's native route, whole answers and streams.

#include <boost/asio/awaitable.hpp>

#include "core/json.h"
#include "engine/http/abort_status.h"
#include "engine/http/api_state.h"
#include "engine/http/generate_request.h"
#include "engine/http/generate_response.h"
#include "engine/http/running_call.h"

namespace slime::engine {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::Task;

/// A triple has about thirty characters; the array, the object and the body each hold it once.
constexpr ResponseCost kCost{.token = 48, .log_prob = 96, .top = 96};

struct Answers {
  std::vector<GenerateResponse> responses;

  void add(const std::vector<IndexedUpdate>& updates) {
    for (const auto& [index, update] : updates) responses[index].add(update);
  }
};

Answers make_answers(ApiState& state, const GenerateCall& call) {
  ResponseForm form;
  form.returns_text_in_logprobs = call.returns_text_in_logprobs;
  form.returns_prompt_token_ids = call.returns_prompt_token_ids;
  form.is_incremental = call.streams && state.options.incremental_streaming_output;
  form.name_version = [&state](WeightVersion version) {
    return state.versions.name_of(version < 0 ? state.engine.weight_version() : version);
  };
  Answers answers;
  for (const GenerateRequest& request : call.requests) {
    answers.responses.emplace_back(request, state.model.tokenizer, form);
  }
  return answers;
}

const FinishReason* find_failure(const Answers& answers) {
  for (const GenerateResponse& response : answers.responses) {
    if (is_http_error(response.finish())) return &*response.finish();
  }
  return nullptr;
}

HttpResponse to_error(const FinishReason& failure) {
  const int status = http_status_of(failure.cause);
  if (status == 400) return net::error_response(400, failure.message);
  const json::value body = {{"detail", failure.message}};
  return {.status = status, .body = json_text(body)};
}

std::string to_error_frame(const FinishReason& failure) {
  const int status = http_status_of(failure.cause);
  const bool is_client = status == 400;
  return json_text(json::value{{"error",
                                {{"message", failure.message},
                                 {"type", is_client ? "invalid_request_error" : "server_error"},
                                 {"code", status},
                                 {"retryable", !is_client}}}});
}

Task<void> answer_whole(ApiState& state, HttpExchange& exchange, GenerateCall call) {
  Answers answers = make_answers(state, call);
  RunningCall running(state.engine, exchange, state.responses, kCost, std::move(call.requests),
                      &state.metrics);
  while (!running.is_finished() && find_failure(answers) == nullptr) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    answers.add(updates);
  }
  if (const FinishReason* failure = find_failure(answers)) {
    HttpResponse refusal = to_error(*failure);
    co_await exchange.send(std::move(refusal));
    co_return;
  }
  std::string body;
  for (GenerateResponse& response : answers.responses) {
    body += body.empty() ? "" : ",";
    body += response.to_json();
  }
  HttpResponse response{.body = call.is_list ? "[" + body + "]" : std::move(body)};
  co_await exchange.send(std::move(response));
}

Task<void> answer_events(ApiState& state, HttpExchange& exchange, GenerateCall call) {
  Answers answers = make_answers(state, call);
  RunningCall running(state.engine, exchange, state.responses, kCost, std::move(call.requests),
                      &state.metrics);
  bool has_begun = false;
  while (!running.is_finished() && exchange.is_connected()) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    answers.add(updates);
    const FinishReason* failure = find_failure(answers);
    if (!has_begun &&
        failure != nullptr) {  // before the first frame a refusal can still be a status
      HttpResponse refusal = to_error(*failure);
      co_await exchange.send(std::move(refusal));
      co_return;
    }
    if (!has_begun) co_await exchange.begin_events();
    has_begun = true;
    if (failure != nullptr) {
      std::string frame = to_error_frame(*failure);
      co_await exchange.write_event(std::move(frame));
      break;
    }
    // One frame per request however many updates it got: frames are cumulative.
    std::vector<bool> is_new(answers.responses.size(), false);
    for (const auto& [index, update] : updates) is_new[index] = true;
    for (std::size_t i = 0; i < is_new.size(); ++i) {
      if (!is_new[i]) continue;
      std::string frame =
          answers.responses[i].to_json(call.is_list ? static_cast<std::int64_t>(i) : -1);
      co_await exchange.write_event(std::move(frame));
    }
  }
  if (!exchange.is_connected()) co_return;
  co_await exchange.write_event("[DONE]");
  co_await exchange.end_events();
}

Task<void> generate(ApiState& state, HttpExchange& exchange) {
  GenerateCall call = co_await parse_call(state, exchange.request, parse_generate_call);
  if (call.streams) {
    co_await answer_events(state, exchange, std::move(call));
  } else {
    co_await answer_whole(state, exchange, std::move(call));
  }
}

}  // namespace

void add_generate_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  for (const char* method : {"POST", "PUT"}) {
    routes.emplace_back(method, "/generate", net::RouteClass::kInference,
                        [&state](HttpExchange& exchange) { return generate(state, exchange); });
  }
}

}  // namespace slime::engine
