#pragma once

/// For tests: a server that answers as it is told, and a gateway in front of several.

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <mutex>
#include <thread>

#include "gateway/gateway.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace slime::gateway {

inline bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// One class because all members are wishes of a test or counts of what one server did.
class ScriptedWorker final {
 public:
  enum class Does { kAnswer, kStream, kCutBeforeAnswer, kCutInStream, kHang };

  explicit ScriptedWorker(std::string name_in, std::string model_in = "m")
      : name(std::move(name_in)), model(std::move(model_in)), server_(config(), routes()) {
    server_.start();
  }
  ~ScriptedWorker() { server_.stop(std::chrono::milliseconds(0)); }

  const std::string name;
  const std::string model;  // that it serves
  std::atomic<int> status{200};
  std::atomic<int> health{200};
  std::atomic<Does> does{Does::kAnswer};
  std::atomic<int> num_requests{0};   // for tokens
  std::atomic<int> num_cancelled{0};  // whose client, which is the gateway, went away
  std::atomic<int> num_written{0};    // pieces of streams
  std::atomic<bool> ends_streams{true};
  std::atomic<std::size_t> answer_bytes{0};  // answers are filled up to this

  std::string url() const { return server_.url(); }
  std::vector<net::HttpRequest> seen(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    std::vector<net::HttpRequest> found;
    for (const net::HttpRequest& each : seen_)
      if (each.path == path) found.push_back(each);
    return found;
  }

 private:
  static net::HttpServerConfig config() { return {.port = 0}; }

  std::vector<net::HttpRoute> routes() {
    std::vector<net::HttpRoute> routes;
    routes.emplace_back("GET", "/health", net::RouteClass::kProbe,
                        net::answer_with([this](const net::HttpRequest&) {
                          return net::HttpResponse{.status = health};
                        }));
    routes.emplace_back(
        "GET", "/v1/models", net::RouteClass::kProbe,
        net::answer_with([this](const net::HttpRequest&) {
          return net::HttpResponse{.body = R"({"object":"list","data":[{"id":")" + model + "\"}]}"};
        }));
    routes.emplace_back(
        "GET", "/sessions", net::RouteClass::kProbe,
        net::answer_with([this](const net::HttpRequest&) {
          return net::HttpResponse{.body = R"({"sessions":[{"name":"of-)" + name + "\"}]}"};
        }));
    for (const char* path : {"/abort_request", "/pause_generation", "/update_weights_from_disk"})
      routes.emplace_back("POST", path, net::RouteClass::kProbe,
                          net::answer_with([this](const net::HttpRequest& request) {
                            note(request);
                            return net::HttpResponse{.status = status, .body = "\"" + name + "\""};
                          }));
    for (const char* method : {"GET", "POST", "DELETE"})
      routes.emplace_back(method, "/*", net::RouteClass::kProbe,
                          [this](net::HttpExchange& exchange) { return answer(exchange); });
    return routes;
  }

  void note(const net::HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(request);
  }

  net::Task<void> wait(net::HttpExchange& exchange, std::chrono::milliseconds time) {
    boost::asio::steady_timer timer(exchange.executor(), time);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }

  net::Task<void> answer(net::HttpExchange& exchange) {
    note(exchange.request);
    ++num_requests;
    auto gone = std::make_shared<bool>(false);
    exchange.on_disconnect([this, gone] {
      ++num_cancelled;
      *gone = true;
    });
    if (does == Does::kCutBeforeAnswer) {
      co_await cut(exchange);
      co_return;
    }
    while (does == Does::kHang && !*gone) co_await wait(exchange, std::chrono::milliseconds(5));
    if (*gone) co_return;
    if (does == Does::kAnswer) {
      net::HttpResponse response{.status = status, .body = "\"" + name + "\""};
      if (response.body.size() < answer_bytes) response.body.resize(answer_bytes, ' ');
      response.headers.emplace_back("X-Name", name);
      response.headers.emplace_back("Connection", "X-Hop");
      response.headers.emplace_back("X-Hop", "of the worker's connection");
      co_await exchange.send(std::move(response));
      co_return;
    }
    net::HttpResponse head{.content_type = "text/event-stream"};
    co_await exchange.begin_body(std::move(head), std::nullopt);
    for (int i = 0; i < 3; ++i) {
      std::string piece = "data: " + std::to_string(i) + "\n\n";
      co_await exchange.write_body(std::move(piece));
      ++num_written;
      if (does == Does::kCutInStream && i == 1) co_return;
    }
    std::string more(64 << 10, 'x');
    while (!ends_streams && !*gone) {  // as fast as it is read
      std::string piece = more;
      co_await exchange.write_body(std::move(piece));
      ++num_written;
    }
    co_await exchange.end_body();
  }

  /// An answer of two bytes that has one.
  net::Task<void> cut(net::HttpExchange& exchange) {
    net::HttpResponse head{.content_type = "text/plain"};
    co_await exchange.begin_body(std::move(head), 2);
    std::string piece = "a";
    co_await exchange.write_body(std::move(piece));
  }

  mutable std::mutex mutex_;
  std::vector<net::HttpRequest> seen_;  // guarded by mutex_
  net::HttpServer server_;              // last: its handlers use everything above
};

/// A gateway in front of workers "a", "b", ..., all of which serve already.
struct Gated {
  /// `models`: of the first workers; the others serve "m".
  explicit Gated(int num_workers, GatewayConfig config = {}, std::vector<std::string> models = {})
      : gateway(fill(std::move(config)), [this](const std::string& line) {
          const std::lock_guard lock(mutex);
          lines.push_back(line);
        }) {
    models.resize(static_cast<std::size_t>(num_workers), "m");
    for (int i = 0; i < num_workers; ++i)
      workers.emplace_back(std::string(1, static_cast<char>('a' + i)), models[i]);
    for (const ScriptedWorker& worker : workers)
      EXPECT_TRUE(gateway.workers().add(*parse_worker_url(worker.url())));
    gateway.start();
    EXPECT_TRUE(eventually([&] {
      const auto views = gateway.workers().list();
      return std::ranges::all_of(views, &Workers::View::is_healthy);
    }));
  }

  static GatewayConfig fill(GatewayConfig config) {
    config.http.port = 0;
    config.workers.health.interval = std::chrono::milliseconds(50);
    config.workers.health.startup_interval = std::chrono::milliseconds(20);
    config.proxy.retry.first_pause = std::chrono::milliseconds(10);
    return config;
  }

  net::HttpResponse call(std::string method, std::string path, std::string body = "",
                         net::HttpHeaders headers = {}) {
    auto response = net::http_call({.method = std::move(method),
                                    .url = gateway.url() + path,
                                    .body = std::move(body),
                                    .headers = std::move(headers)});
    EXPECT_TRUE(response) << response.error().message;
    return response.value_or(net::HttpResponse{.status = 0});
  }
  net::HttpResponse generate(std::string body = "{}") {
    return call("POST", "/generate", std::move(body));
  }
  bool said(const std::string& part) {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(
        lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

  std::deque<ScriptedWorker> workers;
  std::mutex mutex;
  std::vector<std::string> lines;  // guarded by mutex
  Gateway gateway;                 // last: it calls workers and fills lines
};

inline GatewayConfig with_policy(PolicyKind kind) {
  GatewayConfig config;
  config.workers.policy.kind = kind;
  return config;
}

}  // namespace slime::gateway
