#pragma once

/// HTTP/1.1 server: keep-alive, pipelining, chunked requests, server-sent events; one strand per
/// connection on a small pool of threads. No TLS: put a proxy in front.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/access.h"
#include "net/http_exchange.h"

namespace slime::net {

struct HttpServerConfig {
  /// An address or "localhost"; other than loopback needs an API key.
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: the system picks one
  int num_threads = 2;         // 1 .. 64
  AccessRules access = {};
  /// On loopback: whoever is another user of this machine, but for root, is cut off before it is read.
  bool serves_own_user_only = false;

  // Limits. Requests beyond them are refused one by one, never the server.
  std::size_t head_limit_bytes = 32 << 10;
  std::size_t body_limit_bytes = std::size_t{64} << 20;
  /// Bodies being read or handled, together.
  std::size_t all_bodies_limit_bytes = std::size_t{1} << 30;
  int max_connections = 4096;  // the original's client opens 512 per engine
  std::chrono::milliseconds head_timeout{
      10'000};  // from a request's first byte to the end of its head
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds idle_timeout{75'000};  // between two requests of a connection
  std::chrono::milliseconds write_timeout{
      60'000};  // for each MiB; a reader slower than that is cut off
};

class HttpServer {
 public:
  /// Binds and listens, so that `port()` is known; accepts nobody yet. Throws ConfigError when that
  /// cannot be.
  HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes);
  /// Stops, with no grace.
  ~HttpServer();

  /// Starts the threads. Once.
  void start();
  /// Closes the listener and idle connections, waits up to `grace` for requests being answered,
  /// then disconnects them. Returns when every handler has ended. Handlers must end soon after
  /// their on_disconnect.
  void stop(std::chrono::milliseconds grace);

  std::uint16_t port() const;
  /// "http://127.0.0.1:30000"
  std::string url() const;
  int num_connections() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace slime::net
