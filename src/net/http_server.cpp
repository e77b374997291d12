#include "net/http_server.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "core/error.h"
#include "net/http_connection.h"
#include "net/peer_user.h"

namespace slime::net {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// How long a handler may take to end once its client is gone and the server stops.
constexpr std::chrono::seconds kHandlerEndTimeout{30};

asio::ip::address parse_address(const std::string& host) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    throw ConfigError(
        fmt::format("--host {}: not an IP address; 127.0.0.1 serves this machine, "
                    "0.0.0.0 every network (needs a key)",
                    host));
  }
  return address;
}

void check_config(const HttpServerConfig& config, const asio::ip::address& address) {
  std::vector<std::string> problems;
  if (!address.is_loopback() && config.access.api_key.empty()) {
    problems.push_back(
        fmt::format("--host {}: reachable from other machines without a key; give "
                    "--api-key-file, or use 127.0.0.1",
                    config.host));
  }
  if (config.num_threads < 1 || config.num_threads > 64) {
    problems.push_back(fmt::format("{} HTTP threads: 1 to 64 work", config.num_threads));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace

class HttpServer::Listener {
 public:
  Listener(HttpServerConfig config, std::vector<HttpRoute> routes)
      : acceptor_(asio::make_strand(context_)), work_(context_.get_executor()) {
    scope_.config = std::move(config);
    scope_.routes = std::move(routes);
    const asio::ip::address address = parse_address(scope_.config.host);
    check_config(scope_.config, address);
    if (!address.is_loopback() || !scope_.config.access.api_key.empty()) {
      scope_.config.access.checks_host = false;
    }
    const tcp::endpoint endpoint(address, scope_.config.port);
    try {
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      acceptor_.bind(endpoint);
      acceptor_.listen(asio::socket_base::max_listen_connections);
    } catch (const boost::system::system_error& error) {
      throw ConfigError(fmt::format("cannot listen on {} port {}: {}; --port 0 picks a free port",
                                    scope_.config.host, scope_.config.port,
                                    error.code().message()));
    }
    port_ = acceptor_.local_endpoint().port();
  }

  ~Listener() { stop(std::chrono::milliseconds(0)); }

  void start() {
    asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
    for (int i = 0; i < scope_.config.num_threads; ++i) {
      threads_.emplace_back([this] { context_.run(); });
    }
  }

  void stop(std::chrono::milliseconds grace) {
    if (threads_.empty()) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    for_each_connection([](HttpConnection& connection) { connection.begin_stop(); });
    gone_.wait_for(lock, grace, [this] { return connections_.empty(); });
    for_each_connection([](HttpConnection& connection) { connection.disconnect(); });
    gone_.wait_for(lock, kHandlerEndTimeout, [this] { return connections_.empty(); });
    lock.unlock();
    work_.reset();
    context_.stop();
    threads_.clear();  // joins
  }

  std::uint16_t port() const { return port_; }
  const std::string& host() const { return scope_.config.host; }
  int num_connections() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(connections_.size());
  }

 private:
  Task<void> accept() {
    for (;;) {
      error_code error;
      tcp::socket socket =
          co_await acceptor_.async_accept(asio::any_io_executor(asio::make_strand(context_)),
                                          asio::redirect_error(asio::use_awaitable, error));
      if (!acceptor_.is_open()) co_return;
      if (error) {  // out of descriptors, most likely: others must end first
        asio::steady_timer pause(acceptor_.get_executor(), std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      admit(std::move(socket));
    }
  }

  void admit(tcp::socket socket) {
    if (scope_.config.serves_own_user_only && !is_own_user(user_of_peer(socket.native_handle())))
      return;  // closes it
    const auto connection = std::make_shared<HttpConnection>(std::move(socket), scope_);
    {
      const std::lock_guard lock(mutex_);
      const bool is_full = static_cast<int>(connections_.size()) >= scope_.config.max_connections;
      if (is_stopping_ || is_full) return;  // closes the socket
      connections_.emplace(connection.get(), connection);
    }
    asio::co_spawn(connection->executor(), connection->run(),
                   [this, connection](std::exception_ptr) { forget(connection.get()); });
  }

  void forget(HttpConnection* connection) {
    const std::lock_guard lock(mutex_);
    connections_.erase(connection);
    gone_.notify_all();
  }

  /// Under mutex_; `action` runs later, on each connection's strand.
  void for_each_connection(void (*action)(HttpConnection&)) {
    for (const auto& [ignored, weak] : connections_) {
      if (const auto connection = weak.lock()) {
        asio::post(connection->executor(), [connection, action] { action(*connection); });
      }
    }
  }

  ServerScope scope_;
  asio::io_context context_;
  tcp::acceptor acceptor_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable gone_;  // signalled when a connection ends
  // Guarded by mutex_.
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections_;
  bool is_stopping_ = false;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

HttpServer::HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes)
    : listener_(std::make_unique<Listener>(std::move(config), std::move(routes))) {}
HttpServer::~HttpServer() = default;
void HttpServer::start() { listener_->start(); }
void HttpServer::stop(std::chrono::milliseconds grace) { listener_->stop(grace); }
std::uint16_t HttpServer::port() const { return listener_->port(); }
int HttpServer::num_connections() const { return listener_->num_connections(); }

std::string HttpServer::url() const {
  const std::string& host = listener_->host();
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", is_v6 ? "[" + host + "]" : host, port());
}

namespace {
Task<void> send_answer(std::function<HttpResponse(const HttpRequest&)> answer,
                       HttpExchange& exchange) {
  HttpResponse response = answer(exchange.request);
  co_await exchange.send(std::move(response));
}
}  // namespace

HttpHandler answer_with(std::function<HttpResponse(const HttpRequest&)> answer) {
  return [answer = std::move(answer)](HttpExchange& exchange) {
    return send_answer(answer, exchange);
  };
}

}  // namespace slime::net
