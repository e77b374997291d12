#pragma once

/// The engine behind SGLang's and OpenAI's HTTP routes.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/client.h"
#include "engine/http/api_state.h"
#include "engine/http/served_model.h"
#include "net/http_server.h"

namespace slime::engine {

class ApiServer {
 public:
  /// Listens at once, answers after start(). `engine` and `model` outlive the server. Throws
  /// ConfigError when it cannot listen.
  ApiServer(EngineClient& engine, const ServedModel& model, net::HttpServerConfig http,
            ApiOptions options);
  ~ApiServer();

  void start() { http_.start(); }
  /// Waits up to `grace` for running requests, then aborts them.
  void stop(std::chrono::milliseconds grace) {
    state_.ends_at = std::chrono::steady_clock::now() + grace;
    http_.stop(grace);
  }
  std::string url() const { return http_.url(); }
  std::uint16_t port() const { return http_.port(); }

 private:
  static std::vector<net::HttpRoute> make_routes(ApiState& state);

  ApiState state_;
  net::HttpServer http_;
};

}  // namespace slime::engine
