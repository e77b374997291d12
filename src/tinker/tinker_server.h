#pragma once

/// The service's HTTP routes, under /api/v1.
///
///   POST create_session, create_model, forward_backward, optim_step, asample, ...   -> {"request_id": ...}
///   POST retrieve_future {"request_id"}   -> the result, {"error", "category"}, or after 40 s {"type": "try_again"}
///   POST encode, decode; GET flags        this program's own
///
/// Errors are {"detail": sentence} with an HTTP status.

#include <string>

#include "net/http_server.h"
#include "tinker/service.h"

namespace slime::tinker {

class TinkerServer {
 public:
  /// `service` outlives the object. Throws ConfigError when it cannot listen.
  TinkerServer(net::HttpServerConfig config, Service& service);
  void start() { server_.start(); }
  std::string url() const { return server_.url(); }
  void stop() { server_.stop(std::chrono::seconds(2)); }

 private:
  net::HttpServer server_;
};

}  // namespace slime::tinker
