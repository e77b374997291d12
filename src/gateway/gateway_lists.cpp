/// Routes of a gateway whose answers are of all workers, models and sessions, and the name of a new session.

#include <fmt/format.h>

#include <algorithm>

#include "core/json.h"
#include "gateway/gateway.h"
#include "gateway/json_bodies.h"
#include "gateway/worker_calls.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::gateway {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::RouteClass;

constexpr std::chrono::milliseconds kListLimit{10'000};

/// The first answer with the members of all lists, each once; or the first that is no list.
HttpResponse merged(std::vector<WorkerAnswer>& answers, const std::string& member) {
  json::object whole;
  MergedList all;
  for (WorkerAnswer& each : answers) {
    if (!each.response) {
      return net::error_response(
          502, fmt::format("{}: {}", each.worker.address.url(), each.response.error().message));
    }
    if (each.response->status != 200) return std::move(*each.response);
    auto object = object_with_list(each.response->body, member);
    if (!object)
      return net::error_response(502, each.worker.address.url() + " does not answer with a list");
    all.add(object->at(member).get_array());
    if (whole.empty()) whole = std::move(*object);
  }
  whole[member] = all.take();
  return HttpResponse{.body = json_text(whole)};
}

}  // namespace

void Gateway::add_list_routes(std::vector<net::HttpRoute>& routes) {
  routes.emplace_back("GET", "/v1/models", RouteClass::kInference,
                      [this](HttpExchange& exchange) { return send_list(exchange, "data"); });
  routes.emplace_back("GET", "/sessions", RouteClass::kInference,
                      [this](HttpExchange& exchange) { return send_list(exchange, "sessions"); });
  routes.emplace_back("POST", "/sessions", RouteClass::kInference,
                      [this](HttpExchange& exchange) { return open_session(exchange); });
}

net::Task<void> Gateway::open_session(HttpExchange& exchange) {
  exchange.request.body = named_session(std::move(exchange.request.body));
  co_await proxy_.forward(exchange);
}

net::Task<void> Gateway::send_list(HttpExchange& exchange, std::string member) {
  const WorkerCall call{.request = std::move(exchange.request), .timeout = kListLimit};
  Cancellation cancellation;
  exchange.on_disconnect([&cancellation] { cancellation.request(); });
  std::vector<Workers::View> asked = workers_.list();
  std::erase_if(asked, [](const Workers::View& each) { return !each.is_healthy; });
  std::vector<WorkerAnswer> answers = co_await call_workers(call, std::move(asked), cancellation);
  HttpResponse response =
      answers.empty() ? net::error_response(503, "no worker is healthy") : merged(answers, member);
  co_await exchange.send(std::move(response));
}

}  // namespace slime::gateway
