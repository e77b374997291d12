#include "engine/http/protocol_exchange.h"

#include <utility>

#include "engine/http/abort_status.h"
#include "engine/http/running_call.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::Task;

/// Events repeat what the answer holds, and the last one has all of it.
constexpr ResponseCost kCost{.token = 96, .log_prob = 600, .top = 400};

/// Events of the updates; ends the engine's request when nothing more is wanted of it.
std::vector<ServerEvent> add(ApiState& state, ProtocolAnswer& answer, RunningCall& running,
                             const std::vector<IndexedUpdate>& updates) {
  std::vector<ServerEvent> events;
  for (const auto& [index, update] : updates) {
    for (ServerEvent& event : answer.add(update)) events.push_back(std::move(event));
    if (update.finish) {
      const std::size_t num_output = answer.choice().tokens().ids.size();
      state.counters.add(update, static_cast<std::int64_t>(num_output));
    }
  }
  if (answer.choice().wants_stop() && !answer.choice().finish()) running.abort(0);
  return events;
}

const FinishReason* failure_of(const ProtocolAnswer& answer) {
  const auto& finish = answer.choice().finish();
  return is_http_error(finish) ? &*finish : nullptr;
}

Task<void> write_all(HttpExchange& exchange, std::vector<ServerEvent> events) {
  for (ServerEvent& event : events)
    co_await exchange.write_event(std::move(event.data), std::move(event.name));
}

Task<void> send_whole(ApiState& state, HttpExchange& exchange, ProtocolAnswer& answer,
                      RunningCall& running, ProtocolExchange form) {
  while (!running.is_finished()) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    add(state, answer, running, updates);
  }
  HttpResponse response;
  if (const FinishReason* failure = failure_of(answer)) {
    response = form.refuse(ApiError::of(*failure));
  } else {
    response.body = json_text(answer.whole());
  }
  for (auto& header : form.headers) response.headers.push_back(std::move(header));
  co_await exchange.send(std::move(response));
}

Task<void> send_stream(ApiState& state, HttpExchange& exchange, ProtocolAnswer& answer,
                       RunningCall& running, ProtocolExchange form) {
  bool has_begun = false;
  while (!running.is_finished() && exchange.is_connected()) {
    const std::vector<IndexedUpdate> updates = co_await running.next(kKeepAlive);
    std::vector<ServerEvent> events = add(state, answer, running, updates);
    const FinishReason* failure = failure_of(answer);
    if (!has_begun && failure != nullptr) {  // a refusal can still be a status
      HttpResponse response = form.refuse(ApiError::of(*failure));
      co_await exchange.send(std::move(response));
      co_return;
    }
    if (!std::exchange(has_begun, true)) {
      co_await exchange.begin_events(std::move(form.headers));
      co_await write_all(exchange, answer.begin());
    }
    co_await write_all(exchange, std::move(events));
    if (failure != nullptr) co_await write_all(exchange, answer.fail(ApiError::of(*failure)));
    if (!updates.empty()) continue;
    std::vector<ServerEvent> pings = answer.keep_alive();
    if (pings.empty()) co_await exchange.write_comment("ping");
    co_await write_all(exchange, std::move(pings));
  }
  if (exchange.is_connected()) co_await exchange.end_events();
}

}  // namespace

VersionNamer version_namer(const ApiState& state) {
  return {.name = [&state](WeightVersion version) { return state.versions.name_of(version); },
          .current = [&state] { return state.engine.weight_version(); }};
}

net::HttpHeaders ignored_fields_headers(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return {{"x-slime-ignored-fields", ignored_fields_header(names)}};
}

Task<void> send_answer(ApiState& state, HttpExchange& exchange, ProtocolAnswer& answer,
                       GenerateRequest request, ProtocolExchange form) {
  std::vector<GenerateRequest> requests;
  requests.push_back(std::move(request));
  RunningCall running(state.engine, exchange, state.responses, kCost, std::move(requests));
  if (form.streams) {
    co_await send_stream(state, exchange, answer, running, std::move(form));
  } else {
    co_await send_whole(state, exchange, answer, running, std::move(form));
  }
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
