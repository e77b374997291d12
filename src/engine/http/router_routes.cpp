#include "engine/http/router_routes.h"

#include <string>

#include "core/error.h"
#include "core/json.h"

namespace slime::engine {
namespace {

using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;

/// As the client reached it.
std::string own_url(const HttpRequest& request) {
  const auto host = request.header("Host");
  if (!host || host->empty()) throw ConfigError("the Host header is missing");
  return "http://" + std::string(*host);
}

HttpResponse workers(const ApiState& state, const HttpRequest& request) {
  const Expected<EngineLoad> load = state.engine.load();
  json::object self{{"id", "self"},
                    {"url", own_url(request)},
                    {"model_id", state.model.name},
                    {"worker_type", "regular"},
                    {"connection_mode", "http"},
                    {"is_healthy", load.has_value()},
                    {"load", load ? load->num_running + load->num_waiting : 0}};
  return json_response({{"workers", json::array{std::move(self)}}, {"total", 1}});
}

HttpResponse urls(const ApiState&, const HttpRequest& request) {
  return json_response({{"urls", json::array{own_url(request)}}});
}

HttpResponse liveness(const ApiState&, const HttpRequest&) {
  return {.body = "OK", .content_type = "text/plain"};
}

HttpResponse readiness(const ApiState& state, const HttpRequest&) {
  const bool is_ready = state.engine.load().has_value();
  return json_response({{"status", is_ready ? "ready" : "not ready"}}, is_ready ? 200 : 503);
}

}  // namespace

void add_router_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* path, RouteClass route_class,
                       HttpResponse (*answer)(const ApiState&, const HttpRequest&)) {
    routes.emplace_back("GET", path, route_class,
                        net::answer_with([&state, answer](const HttpRequest& request) {
                          return answer(state, request);
                        }));
  };
  add("/workers", RouteClass::kInference, workers);
  add("/list_workers", RouteClass::kInference, urls);
  add("/liveness", RouteClass::kProbe, liveness);
  add("/readiness", RouteClass::kProbe, readiness);
}

}  // namespace slime::engine
