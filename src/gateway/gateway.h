#pragma once

/// Gateway: an HTTP proxy in front of several servers of SGLang's protocol, ours or others'. The command
/// is `slime router` (docs/router.md); why it is as it is: docs/decisions/0131-gateway.md.
///
///   client -- routes -- policy -- worker 1
///               |          \----- worker 2        requests for tokens: to one of them
///               \-- orders ------ worker 1, 2     pause, flush, weights, abort: to all

#include <chrono>
#include <string>
#include <vector>

#include "gateway/health_checks.h"
#include "gateway/proxy.h"
#include "gateway/workers.h"
#include "net/http_server.h"

namespace slime::gateway {

struct GatewayConfig {
  net::HttpServerConfig http;
  WorkersConfig workers;
  ProxyConfig proxy;
};

class Gateway final {
 public:
  /// Listens from now on, and serves after start(). `tell`: a line when a worker's state changes; any
  /// thread. Throws ConfigError when it cannot listen.
  Gateway(const GatewayConfig& config, std::function<void(const std::string&)> tell);
  /// Stops, with no grace.
  ~Gateway();

  void start() { server_.start(); }
  void stop(std::chrono::milliseconds grace) { server_.stop(grace); }
  std::string url() const { return server_.url(); }
  Workers& workers() { return workers_; }

 private:
  std::vector<net::HttpRoute> routes();
  void add_worker_routes(std::vector<net::HttpRoute>& routes);
  void add_state_routes(std::vector<net::HttpRoute>& routes);
  void add_order_routes(std::vector<net::HttpRoute>& routes);
  void add_list_routes(std::vector<net::HttpRoute>& routes);

  net::HttpResponse add_worker(const std::string& url);
  net::HttpResponse remove_worker(const std::string& name, bool at_once);
  net::Task<void> order(net::HttpExchange& exchange);
  net::Task<void> send_loads(net::HttpExchange& exchange);
  net::Task<void> send_engine_metrics(net::HttpExchange& exchange);
  /// The lists that workers have under `member`, as one.
  net::Task<void> send_list(net::HttpExchange& exchange, std::string member);
  net::Task<void> open_session(net::HttpExchange& exchange);

  const GatewayConfig config_;
  Workers workers_;
  Proxy proxy_;
  HealthChecks health_;
  net::HttpServer server_;  // last: its handlers use everything above
};

}  // namespace slime::gateway
