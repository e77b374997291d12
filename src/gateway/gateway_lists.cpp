/// Routes of a gateway whose answers are of all workers, models and sessions, and the name of a new session.

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "core/json.h"
#include "gateway/gateway.h"
#include "gateway/worker_calls.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::gateway {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::RouteClass;

constexpr std::chrono::milliseconds kListLimit{10'000};

/// A new session without a name gets one here: the requests of a name go to one worker. What is no JSON
/// goes on as it is, and the worker says what is wrong with it.
std::string named_session(std::string text) {
  const auto body = try_parse_json(text.empty() ? "{}" : text);
  const json::object* fields = body ? body->if_object() : nullptr;
  if (fields == nullptr) return text;
  const json::value* name = fields->if_contains("name");
  if (name != nullptr && !name->is_null()) return text;
  static thread_local std::mt19937_64 random{std::random_device{}()};
  json::object named = *fields;
  named["name"] = fmt::format("{:016x}{:016x}", random(), random());
  return json_text(named);
}

/// The first answer with the members of all lists, each once; or the first that is no list.
HttpResponse merged(std::vector<WorkerAnswer>& answers, const std::string& member) {
  json::object whole;
  json::array all;
  for (WorkerAnswer& each : answers) {
    if (!each.response) {
      return net::error_response(
          502, fmt::format("{}: {}", each.worker.address.url(), each.response.error().message));
    }
    if (each.response->status != 200) return std::move(*each.response);
    const auto body = try_parse_json(each.response->body);
    const json::object* fields = body ? body->if_object() : nullptr;
    const json::value* list = fields == nullptr ? nullptr : fields->if_contains(member);
    if (list == nullptr || !list->is_array())
      return net::error_response(502, each.worker.address.url() + " does not answer with a list");
    if (whole.empty()) whole = *fields;
    const auto key_of = [](const json::value& entry) {
      const json::object* object = entry.if_object();
      for (const char* name : {"id", "name"}) {
        const json::value* key = object == nullptr ? nullptr : object->if_contains(name);
        if (key != nullptr) return *key;
      }
      return entry;
    };
    for (const json::value& entry : list->get_array()) {
      const bool is_known = std::ranges::any_of(
          all, [&](const json::value& known) { return key_of(known) == key_of(entry); });
      if (!is_known) all.push_back(entry);
    }
  }
  whole[member] = std::move(all);
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
