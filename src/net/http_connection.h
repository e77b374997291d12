#pragma once

/// One accepted connection: reads requests, calls their handlers, writes their answers, in order.
/// Everything runs on the connection's strand. Included by net/http_*.cpp only.

#include <array>
#include <atomic>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/http_exchange.h"
#include "net/http_server.h"
#include "net/request_head.h"

namespace slime::net {

/// What all connections of a server share.
struct ServerScope {
  HttpServerConfig config;
  std::vector<HttpRoute> routes;
  std::atomic<std::size_t> body_bytes{0};  // of the bodies being read or handled
};

/// One body's share of `all_bodies_limit_bytes`: what has arrived of it, never what its head
/// announces, so that a client which sends heads alone takes nothing from the others. Given back at
/// the end of the request.
class BodyShare {
 public:
  explicit BodyShare(ServerScope& scope) : scope_(scope) {}
  ~BodyShare() { scope_.body_bytes.fetch_sub(bytes_); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  /// False, and nothing is taken, when `bytes` do not fit beside the other bodies.
  bool grow_to(std::size_t bytes);

 private:
  ServerScope& scope_;
  std::size_t bytes_ = 0;
};

/// One class because its members are the state of one strand: what is read, what is answered and
/// whether the peer is there change together, in coroutines that await one another.
class HttpConnection final : public HttpExchange,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, ServerScope& scope);

  /// Serves until the peer or the server is done.
  Task<void> run();

  /// On the strand: no further request; at once when none is being read or answered.
  void begin_stop();
  /// On the strand: as if the peer had gone.
  void disconnect();

  boost::asio::any_io_executor executor() const override;
  Task<void> send(HttpResponse response) override;
  Task<void> begin_events(HttpHeaders headers) override;
  Task<void> write_event(std::string data, std::string name) override;
  Task<void> write_comment(std::string text) override;
  Task<void> end_events() override;
  Task<void> begin_body(HttpResponse head, std::optional<std::uint64_t> length) override;
  Task<void> write_body(std::string bytes) override;
  Task<void> end_body() override;
  void on_disconnect(std::function<void()> callback) override;
  bool is_connected() const override { return is_connected_; }

 private:
  enum class Answer { kNone, kEvents, kBody, kDone };

  Task<bool> serve_one();
  Task<std::optional<std::string>> read_head();
  Task<bool> read_body(const RequestHead& head, BodyShare& share);
  Task<bool> read_sized_body(std::uint64_t length, BodyShare& share);
  Task<bool> read_chunked_body(BodyShare& share);
  Task<void> call_handler(const HttpHandler& handler);
  Task<void> refuse_and_close(HttpResponse response);
  Task<bool> read_more();
  Task<void> write(std::string_view bytes);
  Task<void> write_frame(std::string frame);
  Task<void> close();
  void watch_peer();
  void poll_peer();
  void stop_watching();
  /// Without a length: in chunks, or up to the end of the connection.
  std::string response_head(const HttpResponse& response,
                            std::optional<std::uint64_t> length) const;

  boost::beast::tcp_stream stream_;
  ServerScope& scope_;
  std::string input_;  // received, not yet consumed
  std::array<char, 16 << 10> chunk_;

  // About the request being answered.
  Answer answer_ = Answer::kNone;
  bool keeps_alive_ = true;
  bool is_head_request_ = false;
  bool is_chunked_ = false;  // the body of kBody
  bool is_http_1_0_ = false;
  HttpHeaders cross_origin_;  // for the page that asks

  bool is_connected_ = true;
  bool is_idle_ = true;  // between requests
  bool is_stopping_ = false;
  bool is_watching_ = false;
  std::function<void()> on_disconnect_;
  boost::asio::cancellation_signal stop_watching_;
  boost::asio::steady_timer peer_poll_;
};

}  // namespace slime::net
