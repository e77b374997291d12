/// /sessions: opened, looked at, ended, and asked in through every chat protocol.

#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/protocol_exchange.h"
#include "engine/http/session_access.h"
#include "engine/http/session_json.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

using std::chrono::steady_clock;

constexpr std::string_view kSessions = "/sessions/";
constexpr std::string_view kVersion1 = "/v1/";
constexpr std::chrono::seconds kDefaultWait{5};
constexpr int kLongestWaitSeconds = 600;
/// What was aborted ends with the engine's next step.
constexpr std::chrono::seconds kAbortWait{10};
constexpr std::chrono::milliseconds kLook{5};

/// Handlers of the chat protocols, by method and path.
using ChatHandlers = std::map<std::pair<std::string, std::string>, net::HttpHandler>;

HttpResponse session_refusal(const ApiError& error) {
  HttpResponse response = openai_error_response(error);
  response.headers.push_back(kNoRetry);
  return response;
}

ApiError no_such_session(std::string_view name) {
  return ApiError({.status = 404, .code = "no_such_session"},
                  "no session is open under the name " + std::string(name));
}

HttpResponse open_session(ApiState& state, const HttpRequest& request) {
  try {
    require_tokenizer(state.model);
    NewSession session = read_new_session(parse_body(request.body), state.model);
    return json_response(
        session_summary(*state.sessions.open(session.name, std::move(session.options))));
  } catch (const ConfigError& error) {
    return session_refusal(ApiError::of(error));
  }
}

HttpResponse list_sessions(ApiState& state, const HttpRequest&) {
  json::array sessions;
  for (const auto& session : state.sessions.all()) sessions.push_back(session_summary(*session));
  return json_response({{"sessions", std::move(sessions)}});
}

HttpResponse show_session(ApiState& state, const HttpRequest& request) {
  const std::string_view name = std::string_view(request.path).substr(kSessions.size());
  const std::shared_ptr<Session> session = state.sessions.find(name);
  if (session == nullptr) return session_refusal(no_such_session(name));
  return json_response(session_with_turns(*session, version_namer(state)));
}

/// ?wait_seconds=N; nothing where it is no number.
std::optional<std::chrono::seconds> wait_of(const HttpRequest& request) {
  const std::optional<std::string> text = request.query_value("wait_seconds");
  if (!text) return request.query.empty() ? std::optional(kDefaultWait) : std::nullopt;
  int seconds = 0;
  const char* end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, seconds);
  const bool is_right =
      error == std::errc() && at == end && seconds >= 0 && seconds <= kLongestWaitSeconds;
  return is_right ? std::optional(std::chrono::seconds(seconds)) : std::nullopt;
}

/// Until nothing runs in the session; false at the deadline.
Task<bool> wait_until_idle(HttpExchange& exchange, const Session& session,
                           steady_clock::time_point deadline) {
  boost::asio::steady_timer timer(exchange.executor());
  while (session.num_running() > 0) {
    if (steady_clock::now() >= deadline || !exchange.is_connected()) co_return false;
    timer.expires_after(kLook);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
  co_return true;
}

/// Answers with the turns. Where nobody is there to read them the session stays, closed.
Task<void> end_session(ApiState& state, HttpExchange& exchange) {
  const std::string name = exchange.request.path.substr(kSessions.size());
  const std::shared_ptr<Session> session = state.sessions.find(name);
  const std::optional<std::chrono::seconds> wait = wait_of(exchange.request);
  if (session == nullptr || !wait) {
    HttpResponse refusal = session_refusal(
        session == nullptr
            ? no_such_session(name)
            : ApiError({.param = "wait_seconds"},
                       "wait_seconds must be a whole number from 0 to 600, and nothing else"));
    co_await exchange.send(std::move(refusal));
    co_return;
  }
  session->close();
  const bool is_idle = co_await wait_until_idle(exchange, *session, steady_clock::now() + *wait);
  if (!is_idle) {
    std::function<bool()> abort = [&state, session] {
      return state.engine.abort_prefix(session->rid_prefix()).has_value();
    };
    static_cast<void>(co_await compute_on(state.control_threads, std::move(abort)));
    static_cast<void>(
        co_await wait_until_idle(exchange, *session, steady_clock::now() + kAbortWait));
  }
  std::function<HttpResponse()> write = [&state, session] {
    return json_response(session_with_turns(*session, version_namer(state)));
  };
  HttpResponse response = co_await compute_on(state.parse_threads, std::move(write));
  if (exchange.is_connected()) state.sessions.remove(session);
  co_await exchange.send(std::move(response));
}

/// /sessions/NAME/v1/... is /v1/... of that session.
Task<void> answer_in_session(const ChatHandlers& handlers, HttpExchange& exchange) {
  HttpRequest& request = exchange.request;
  const std::string path = request.path.substr(kSessions.size());
  const std::size_t slash = path.find(kVersion1);
  const auto handler = slash == std::string::npos
                           ? handlers.end()
                           : handlers.find({request.method, path.substr(slash)});
  if (handler == handlers.end()) {
    HttpResponse refusal = net::error_response(
        404, "there is no such path in a session: it has the chat protocols below /v1");
    co_await exchange.send(std::move(refusal));
    co_return;
  }
  std::erase_if(request.headers, [](const auto& header) {
    return net::equals_ignoring_case(header.first, kSessionHeader);
  });
  request.headers.emplace_back(kSessionHeader, path.substr(0, slash));
  request.path = path.substr(slash);
  co_await handler->second(exchange);
}

}  // namespace

void add_session_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  const auto handlers = std::make_shared<ChatHandlers>();
  for (const net::HttpRoute& route : routes) {
    if (route.path.starts_with(kVersion1) && route.path != "/v1/completions" &&
        route.path != "/v1/embeddings" && !route.path.ends_with('*'))
      handlers->emplace(std::pair(route.method, route.path), route.handler);
  }
  const auto add = [&](const char* method, const char* path, net::HttpHandler handler) {
    routes.emplace_back(method, path, net::RouteClass::kInference, std::move(handler));
  };
  const auto add_answer = [&](const char* method, const char* path,
                              HttpResponse (*answer)(ApiState&, const HttpRequest&)) {
    add(method, path, answer_on(state.parse_threads, [&state, answer](const HttpRequest& request) {
          return answer(state, request);
        }));
  };
  add_answer("POST", "/sessions", open_session);
  add_answer("GET", "/sessions", list_sessions);
  const net::HttpHandler show =
      answer_on(state.parse_threads,
                [&state](const HttpRequest& request) { return show_session(state, request); });
  add("GET", "/sessions/*", [handlers, show](HttpExchange& exchange) {
    const bool is_inside = exchange.request.path.find('/', kSessions.size()) != std::string::npos;
    return is_inside ? answer_in_session(*handlers, exchange) : show(exchange);
  });
  add("POST", "/sessions/*",
      [handlers](HttpExchange& exchange) { return answer_in_session(*handlers, exchange); });
  add("DELETE", "/sessions/*",
      [&state](HttpExchange& exchange) { return end_session(state, exchange); });
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
