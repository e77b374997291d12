#pragma once

/// Drives one request of a protocol that names its events: submits it, and sends its answer whole or
/// as a stream.

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

namespace slime::engine {

/// A stream that is silent for longer gets a comment: proxies close it otherwise.
inline constexpr std::chrono::seconds kKeepAlive{15};

struct ProtocolExchange {
  bool streams = false;
  net::HttpHeaders headers;  // of the answer
  /// How the protocol refuses a request.
  std::function<net::HttpResponse(const ApiError&)> refuse;
};

/// `answer` outlives the coroutine.
net::Task<void> send_answer(ApiState& state, net::HttpExchange& exchange, ProtocolAnswer& answer,
                            GenerateRequest request, ProtocolExchange form);

/// The request's body as a call; nothing after a refusal was sent. `is_apart`: on a thread of its own, as
/// chat templates run, which are programs.
template <typename Call>
net::Task<std::optional<Call>> read_call(ApiState& state, net::HttpExchange& exchange,
                                         Call (*parse)(const json::object&, const ServedModel&),
                                         std::function<net::HttpResponse(const ApiError&)> refuse,
                                         bool is_apart = true) {
  std::optional<Call> call;
  net::HttpResponse refusal;
  try {
    call = co_await parse_call(state, exchange.request, parse, is_apart);
  } catch (const ConfigError& error) {
    refusal = refuse(ApiError::of(error));
  }
  if (!call) co_await exchange.send(std::move(refusal));
  co_return call;
}

VersionNamer version_namer(const ApiState& state);

/// x-slime-ignored-fields, where there are any.
net::HttpHeaders ignored_fields_headers(const std::vector<std::string>& names);

}  // namespace slime::engine
