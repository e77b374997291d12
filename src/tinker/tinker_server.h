#pragma once

/// The service's HTTP routes, under /api/v1.
///
///   POST create_session, create_model, forward_backward, optim_step, asample, ...   -> {"request_id": ...}
///   POST retrieve_future {"request_id"}   -> the result, {"error", "category"}, or after 40 s {"type": "try_again"}
///   POST encode, decode; GET flags        this program's own
///
/// Errors are {"detail": sentence} with an HTTP status. forward_backward is also taken in Protocol Buffers; results of
/// passes and samples come in them where Accept says so.

#include <string>
#include <vector>

#include "net/http_server.h"
#include "tinker/service.h"

namespace slime::tinker {

class TinkerServer {
 public:
  /// `keys`: of who may call it; without any, each key that a client sends is a client. `service` outlives the
  /// object. Throws ConfigError when it cannot listen.
  TinkerServer(net::HttpServerConfig config, std::vector<std::string> keys, Service& service);
  ~TinkerServer() { stop(); }
  void start() { server_.start(); }
  std::string url() const { return server_.url(); }
  /// Nothing of it waits for a future any more.
  void stop();

 private:
  Service& service_;
  net::HttpServer server_;
};

}  // namespace slime::tinker
