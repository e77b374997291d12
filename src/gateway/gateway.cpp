#include "gateway/gateway.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "gateway/json_bodies.h"
#include "gateway/metrics.h"
#include "gateway/worker_calls.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::gateway {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;

constexpr std::chrono::milliseconds kQuestionLimit{10'000};

const char* word_of(CircuitBreaker::State state) {
  switch (state) {
    case CircuitBreaker::State::kClosed:
      return "closed";
    case CircuitBreaker::State::kOpen:
      return "open";
    case CircuitBreaker::State::kHalfOpen:
      return "half_open";
  }
  return "";
}

json::object to_json(const Workers::View& worker) {
  return {{"id", name_of(worker.id)},
          {"url", worker.address.url()},
          {"worker_type", "regular"},
          {"connection_mode", "http"},
          {"priority", 50},
          {"cost", 1.0},
          {"model_id",
           worker.models.empty() ? json::value(nullptr) : json::value(worker.models.front())},
          {"models", json::value_from(worker.models)},
          {"is_healthy", worker.is_healthy},
          {"is_draining", worker.is_draining},
          {"circuit_breaker", word_of(worker.breaker)},
          {"load", worker.load},
          {"processed_requests", worker.num_requests},
          {"failed_requests", worker.num_failures},
          {"problem", worker.why_unhealthy.empty() ? json::value(nullptr)
                                                   : json::value(worker.why_unhealthy)}};
}

HttpResponse json_answer(int status, const json::object& body) {
  return {.status = status, .body = json_text(body)};
}

HttpResponse list_workers(const Workers& workers) {
  json::array list;
  for (const Workers::View& worker : workers.list()) list.push_back(to_json(worker));
  const auto total = static_cast<int64_t>(list.size());
  return json_answer(
      200, {{"workers", std::move(list)},
            {"total", total},
            {"stats", {{"prefill_count", 0}, {"decode_count", 0}, {"regular_count", total}}}});
}

HttpResponse list_urls(const Workers& workers) {
  json::array urls;
  for (const Workers::View& worker : workers.list()) urls.emplace_back(worker.address.url());
  return json_answer(200, {{"urls", std::move(urls)}});
}

HttpResponse list_loads(const Workers& workers) {
  json::array list;
  for (const Workers::View& worker : workers.list())
    list.push_back(json::object{{"worker", worker.address.url()}, {"load", worker.load}});
  return json_answer(200, {{"workers", std::move(list)}});
}

HttpResponse readiness(const Workers& workers) {
  const std::vector<Workers::View> views = workers.list();
  const auto healthy = std::ranges::count_if(views, &Workers::View::is_healthy);
  const bool is_ready = workers.has_ready();
  return json_answer(is_ready ? 200 : 503, {{"status", is_ready ? "ready" : "not ready"},
                                            {"healthy_workers", healthy},
                                            {"total_workers", views.size()}});
}

std::string url_in_query(const HttpRequest& request) {
  const auto url = request.query_value("url");
  if (!url || url->empty()) throw ConfigError("?url=http://HOST:PORT is missing");
  return *url;
}

/// "/workers/w3" -> "w3".
std::string name_in_path(const HttpRequest& request) {
  return request.path.substr(std::string_view("/workers/").size());
}

HttpResponse no_such_worker(const std::string& name) {
  return net::error_response(404, fmt::format("no worker \"{}\"; GET /workers lists them", name));
}

}  // namespace

Gateway::Gateway(const GatewayConfig& config, std::function<void(const std::string&)> tell)
    : config_(config),
      workers_(config.workers),
      proxy_(config.proxy, workers_),
      health_(config.workers.health, workers_),
      server_(config.http, routes()) {
  workers_.tell_by(std::move(tell));
}

Gateway::~Gateway() {
  server_.stop(std::chrono::milliseconds(0));
  workers_.drop_connections();  // they belong to the server's threads
}

std::vector<net::HttpRoute> Gateway::routes() {
  std::vector<net::HttpRoute> routes;
  add_worker_routes(routes);
  add_state_routes(routes);
  add_order_routes(routes);
  add_list_routes(routes);
  routes.emplace_back("GET", "/health_generate", RouteClass::kProbe,
                      [this](HttpExchange& exchange) { return proxy_.forward(exchange); });
  for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
    routes.emplace_back(method, "/*", RouteClass::kInference,
                        [this](HttpExchange& exchange) { return proxy_.forward(exchange); });
  }
  return routes;
}

HttpResponse Gateway::add_worker(const std::string& url) {
  const Expected<WorkerAddress> address = parse_worker_url(url);
  if (!address) return net::error_response(400, address.error().message);
  const Expected<WorkerId> id = workers_.add(*address);
  if (!id) return net::error_response(409, id.error().message);
  const std::string name = name_of(*id);
  return json_answer(202, {{"status", "accepted"},
                           {"worker_id", name},
                           {"url", address->url()},
                           {"location", "/workers/" + name},
                           {"message", "serves as soon as it is healthy"}});
}

HttpResponse Gateway::remove_worker(const std::string& name, bool at_once) {
  if (!workers_.remove(name, at_once)) return no_such_worker(name);
  return json_answer(202, {{"status", "accepted"},
                           {"worker_id", name},
                           {"message", at_once ? "removed" : "gone when it has nothing left"}});
}

void Gateway::add_worker_routes(std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* method, const char* path, RouteClass route_class,
                       std::function<HttpResponse(const HttpRequest&)> answer) {
    routes.emplace_back(method, path, route_class, net::answer_with(std::move(answer)));
  };
  add("GET", "/workers", RouteClass::kInference,
      [this](const HttpRequest&) { return list_workers(workers_); });
  add("GET", "/list_workers", RouteClass::kInference,
      [this](const HttpRequest&) { return list_urls(workers_); });
  add("GET", "/workers/*", RouteClass::kInference, [this](const HttpRequest& request) {
    const std::string name = name_in_path(request);
    const auto worker = workers_.find(name);
    return worker ? json_answer(200, to_json(*worker)) : no_such_worker(name);
  });
  add("POST", "/workers", RouteClass::kControl,
      [this](const HttpRequest& request) { return add_worker(url_in_body(request.body)); });
  add("DELETE", "/workers/*", RouteClass::kControl, [this](const HttpRequest& request) {
    return remove_worker(name_in_path(request), request.query_value("force") == "true");
  });
  add("POST", "/add_worker", RouteClass::kControl,
      [this](const HttpRequest& request) { return add_worker(url_in_query(request)); });
  add("POST", "/remove_worker", RouteClass::kControl, [this](const HttpRequest& request) {
    return remove_worker(url_in_query(request), request.query_value("force") == "true");
  });
}

void Gateway::add_state_routes(std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* path, RouteClass route_class,
                       std::function<HttpResponse(const HttpRequest&)> answer) {
    routes.emplace_back("GET", path, route_class, net::answer_with(std::move(answer)));
  };
  add("/liveness", RouteClass::kProbe,
      [](const HttpRequest&) { return HttpResponse{.body = "OK", .content_type = "text/plain"}; });
  for (const char* path : {"/readiness", "/health"})
    add(path, RouteClass::kProbe, [this](const HttpRequest&) { return readiness(workers_); });
  add("/metrics", RouteClass::kProbe, [this](const HttpRequest&) {
    return HttpResponse{.body = metrics_text(workers_, proxy_),
                        .content_type = "text/plain; version=0.0.4"};
  });
  add("/get_loads", RouteClass::kInference,
      [this](const HttpRequest&) { return list_loads(workers_); });
  routes.emplace_back("GET", "/v1/loads", RouteClass::kInference,
                      [this](HttpExchange& exchange) { return send_loads(exchange); });
  routes.emplace_back("GET", "/engine_metrics", RouteClass::kProbe,
                      [this](HttpExchange& exchange) { return send_engine_metrics(exchange); });
}

net::Task<void> Gateway::send_loads(HttpExchange& exchange) {
  const WorkerCall call{.request = std::move(exchange.request), .timeout = kQuestionLimit};
  Cancellation cancellation;
  exchange.on_disconnect([&cancellation] { cancellation.request(); });
  std::vector<WorkerAnswer> answers = co_await call_workers(call, workers_.list(), cancellation);
  json::array loads;
  HttpResponse response;
  for (WorkerAnswer& each : answers) {
    const auto object =
        each.response ? object_with_list(each.response->body, "loads") : std::nullopt;
    if (!object) {
      response = net::error_response(502, each.worker.address.url() + " does not tell its load");
      break;
    }
    for (const json::value& load : object->at("loads").get_array()) {
      json::object copy = load.is_object() ? load.get_object() : json::object{{"load", load}};
      copy["worker"] = each.worker.address.url();
      loads.push_back(std::move(copy));
    }
  }
  if (response.status == 200)
    response = json_answer(200, {{"version", "slime"}, {"loads", std::move(loads)}});
  co_await exchange.send(std::move(response));
}

net::Task<void> Gateway::send_engine_metrics(HttpExchange& exchange) {
  WorkerCall call{.request = std::move(exchange.request), .timeout = kQuestionLimit};
  call.request.target = "/metrics";
  Cancellation cancellation;
  exchange.on_disconnect([&cancellation] { cancellation.request(); });
  const std::vector<WorkerAnswer> answers =
      co_await call_workers(call, workers_.list(), cancellation);
  std::vector<std::pair<std::string, std::string>> texts;
  for (const WorkerAnswer& each : answers) {
    if (each.response && each.response->status == 200)
      texts.emplace_back(each.worker.address.url(), each.response->body);
  }
  HttpResponse response{.body = merge_metrics(texts), .content_type = "text/plain; version=0.0.4"};
  co_await exchange.send(std::move(response));
}

}  // namespace slime::gateway
