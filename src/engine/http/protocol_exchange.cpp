#include "engine/http/protocol_exchange.h"

#include <utility>

#include "engine/http/running_call.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

/// Ends the engine's requests of which nothing more is wanted.
void add(ProtocolAnswer& answer, RunningCall& running, const std::vector<IndexedUpdate>& updates) {
  for (const auto& [index, update] : updates) answer.add(index, update);
  for (const std::size_t index : answer.take_stops()) running.abort(index);
}

Task<void> write_all(HttpExchange& exchange, std::vector<ServerEvent> events) {
  for (ServerEvent& event : events)
    co_await exchange.write_event(std::move(event.data), std::move(event.name));
}

/// The last events of an answer. Who is there for the last one has read the others.
Task<void> write_end(HttpExchange& exchange, std::vector<ServerEvent> events,
                     RecordedTurns& turns) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i + 1 == events.size() && exchange.is_connected()) turns.keep();
    co_await exchange.write_event(std::move(events[i].data), std::move(events[i].name));
  }
}

Task<void> send_whole(HttpExchange& exchange, ProtocolAnswer& answer, RunningCall& running,
                      ProtocolExchange form) {
  while (!running.is_finished() && answer.failure() == nullptr) {
    const std::vector<IndexedUpdate> updates = co_await running.next();
    add(answer, running, updates);
  }
  HttpResponse response;
  RecordedTurns turns(form.session);
  if (const FinishReason* failure = answer.failure()) {
    response = form.refuse(ApiError::of(*failure));
    turns.lose(answer.chat_choices());
  } else {
    turns.record(answer.chat_choices());
    response.body = answer.body();
  }
  for (auto& header : form.headers) response.headers.push_back(std::move(header));
  // Not behind the sending: a client that has read it all may be gone by then.
  if (exchange.is_connected()) turns.keep();
  co_await exchange.send(std::move(response));
}

Task<void> send_stream(HttpExchange& exchange, ProtocolAnswer& answer, RunningCall& running,
                       ProtocolExchange form) {
  bool has_begun = false;
  RecordedTurns turns(form.session);
  while (!running.is_finished() && exchange.is_connected()) {
    const std::vector<IndexedUpdate> updates = co_await running.next(kKeepAlive);
    add(answer, running, updates);
    const FinishReason* failure = answer.failure();
    if (!has_begun && failure != nullptr) {  // a refusal can still be a status
      turns.lose(answer.chat_choices());
      HttpResponse response = form.refuse(ApiError::of(*failure));
      co_await exchange.send(std::move(response));
      co_return;
    }
    if (!std::exchange(has_begun, true)) {
      co_await exchange.begin_events(std::move(form.headers));
      co_await write_all(exchange, answer.begin());
    }
    if (failure != nullptr) {
      turns.lose(answer.chat_choices());
      co_await write_all(exchange, answer.fail(ApiError::of(*failure)));
      co_await exchange.end_events();
      co_return;
    }
    if (running.is_finished()) {
      turns.record(answer.chat_choices());
      co_await write_end(exchange, answer.next(), turns);
    } else {
      co_await write_all(exchange, answer.next());
    }
    if (!updates.empty()) continue;
    std::vector<ServerEvent> pings = answer.keep_alive();
    if (pings.empty()) co_await exchange.write_comment("ping");
    co_await write_all(exchange, std::move(pings));
  }
  if (!running.is_finished()) turns.lose(answer.chat_choices());
  if (!exchange.is_connected()) co_return;
  co_await write_all(exchange, answer.end());
  co_await exchange.end_events();
}

}  // namespace

HttpResponse count_tokens(const ApiState& state, const net::HttpRequest& request,
                          TokenCountForm form) {
  try {
    const json::object body = parse_body(request.body);
    const std::shared_ptr<ChatSession> session = session_of(state, request.headers, body);
    const ServedModel& model = session == nullptr ? state.model : session->model();
    ChatRequest chat = form.read(body, model);
    form.answer["input_tokens"] = count_prompt_tokens(std::move(chat), model, session.get());
    return json_response(form.answer);
  } catch (const ConfigError& error) {
    return form.refuse(ApiError::of(error));
  }
}

VersionNamer version_namer(const ApiState& state) {
  return {.name = [&state](WeightVersion version) { return state.versions.name_of(version); },
          .current = [&state] { return state.engine.weight_version(); }};
}

net::HttpHeaders ignored_fields_headers(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return {{"x-slime-ignored-fields", ignored_fields_header(names)}};
}

Task<void> send_answer(ApiState& state, HttpExchange& exchange, ProtocolAnswer& answer,
                       std::vector<GenerateRequest> requests, ProtocolExchange form) {
  RunningCall running(state.engine, exchange, state.responses, form.cost, std::move(requests),
                      &state.metrics);
  if (form.streams) {
    co_await send_stream(exchange, answer, running, std::move(form));
  } else {
    co_await send_whole(exchange, answer, running, std::move(form));
  }
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
