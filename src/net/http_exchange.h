#pragma once

/// One request being answered: what a route's handler gets.
///
/// A handler is a coroutine on the connection's strand. It answers once: `send`, or `begin_events`
/// with any number of `write_event` and one `end_events`, or the same of `begin_body`. Writes wait until the socket took the
/// bytes, so a slow reader slows its own handler and nobody else. A handler that throws ConfigError
/// answers 400 with the text, any other exception 500.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "net/access.h"
#include "net/http_message.h"

namespace slime::net {

template <typename T = void>
using Task = boost::asio::awaitable<T>;

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  /// The handler may move parts out of it.
  HttpRequest request;

  /// The connection's strand: everything of this exchange happens there.
  virtual boost::asio::any_io_executor executor() const = 0;

  virtual Task<void> send(HttpResponse response) = 0;

  /// Starts a stream of server-sent events (200, text/event-stream) with these further headers.
  virtual Task<void> begin_events(HttpHeaders headers) = 0;
  Task<void> begin_events() { return begin_events(HttpHeaders()); }
  /// One "event: NAME\ndata: ...\n\n" frame, without its first line when `name` is empty. Neither
  /// has a line break. Does nothing once the peer is gone.
  virtual Task<void> write_event(std::string data, std::string name) = 0;
  Task<void> write_event(std::string data) { return write_event(std::move(data), std::string()); }
  /// One ": ...\n\n" frame, which clients skip: it keeps proxies from closing an idle stream.
  virtual Task<void> write_comment(std::string text) = 0;
  virtual Task<void> end_events() = 0;

  /// Starts an answer whose body comes in pieces: of `length` bytes together, or of any number. The
  /// body of `head` is not looked at. A handler that ends before end_body() cuts the connection, by
  /// which the client knows that something is missing.
  virtual Task<void> begin_body(HttpResponse head, std::optional<std::uint64_t> length) = 0;
  /// Does nothing once the peer is gone.
  virtual Task<void> write_body(std::string bytes) = 0;
  virtual Task<void> end_body() = 0;

  /// Calls `callback` once, on the strand, when the peer closes the connection or the server stops
  /// before the handler is done; at once if that has happened. The next call replaces it.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  virtual bool is_connected() const = 0;
};

/// `exchange` outlives the coroutine. Not itself a coroutine lambda with captures: it calls one
/// (STYLE section 6).
using HttpHandler = std::function<Task<void>(HttpExchange& exchange)>;

struct HttpRoute {
  std::string method;
  std::string path;  // exact, or "/v1/models/*": what starts like it and goes on; exact ones win
  RouteClass route_class;
  HttpHandler handler;

  HttpRoute(std::string method_, std::string path_, RouteClass class_, HttpHandler handler_)
      : method(std::move(method_)),
        path(std::move(path_)),
        route_class(class_),
        handler(std::move(handler_)) {}
};

/// A handler that answers at once, without waiting.
HttpHandler answer_with(std::function<HttpResponse(const HttpRequest&)> answer);

}  // namespace slime::net
