#include "net/http_connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>

#include "core/error.h"
#include "core/safe_text.h"
#include "net/cross_origin.h"

namespace slime::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kLingerBytes = 1 << 20;
constexpr std::size_t kBodySlice = 64 << 10;
constexpr std::chrono::milliseconds kPeerPoll{100};
constexpr std::string_view kTooManyBodies =
    "the server holds as many bytes of request bodies as it may; try again later";

/// Whether the peer has closed its side, also while bytes of it are still unread.
bool has_hung_up(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_state != TCP_ESTABLISHED;
}

bool is_exact(std::string_view route, std::string_view path) { return route == path; }

bool is_prefix(std::string_view route, std::string_view path) {
  if (!route.ends_with('*')) return false;
  route.remove_suffix(1);
  return path.size() > route.size() && path.starts_with(route);
}

/// The route, or the answer where there is none.
std::variant<const HttpRoute*, HttpResponse> find_route(const ServerScope& scope,
                                                        const RequestHead& head) {
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  std::string allowed;
  for (const auto matches : {is_exact, is_prefix}) {
    for (const HttpRoute& route : scope.routes) {
      if (!matches(route.path, head.path)) continue;
      if (route.method == method) return &route;
      allowed += (allowed.empty() ? "" : ", ") + route.method;
    }
  }
  if (allowed.empty()) return error_response(404, "there is no such path on this server");
  if (is_preflight(head)) {
    std::optional<HttpResponse> refusal =
        find_refusal(scope.config.access, RouteClass::kProbe, head);
    return refusal ? *std::move(refusal) : preflight_response(head, allowed);
  }
  HttpResponse response = error_response(405, "this path takes " + allowed);
  response.headers.emplace_back("Allow", allowed);
  return response;
}

}  // namespace

bool BodyShare::grow_to(std::size_t bytes) {
  if (bytes <= bytes_) return true;
  const std::size_t more = bytes - bytes_;
  if (scope_.body_bytes.fetch_add(more) + more > scope_.config.all_bodies_limit_bytes) {
    scope_.body_bytes.fetch_sub(more);
    return false;
  }
  bytes_ = bytes;
  return true;
}

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, ServerScope& scope)
    : stream_(std::move(socket)), scope_(scope), peer_poll_(stream_.get_executor()) {
  error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

asio::any_io_executor HttpConnection::executor() const {
  return const_cast<boost::beast::tcp_stream&>(stream_).get_executor();
}

Task<void> HttpConnection::run() {
  bool lives = true;
  while (lives) lives = co_await serve_one();
  co_await close();
}

Task<bool> HttpConnection::serve_one() {
  is_idle_ = input_.empty();
  if (is_stopping_ || !is_connected_) co_return false;
  answer_ = Answer::kNone;
  cross_origin_.clear();
  const std::optional<std::string> text = co_await read_head();
  if (!text) co_return false;

  auto parsed = parse_request_head(*text);
  if (const auto* bad = std::get_if<HeadProblem>(&parsed)) {
    HttpResponse refusal = error_response(bad->status, bad->message);
    co_await refuse_and_close(std::move(refusal));
    co_return false;
  }
  RequestHead& head = std::get<RequestHead>(parsed);
  is_head_request_ = head.method == "HEAD";
  is_http_1_0_ = head.is_http_1_0;
  keeps_alive_ = head.keeps_alive;
  cross_origin_ = cross_origin_headers(scope_.config.access, head);

  auto found = find_route(scope_, head);
  std::optional<HttpResponse> refusal;
  if (auto* none = std::get_if<HttpResponse>(&found)) refusal = std::move(*none);
  if (!refusal) {
    refusal =
        find_refusal(scope_.config.access, std::get<const HttpRoute*>(found)->route_class, head);
  }
  if (!refusal && head.content_length > scope_.config.body_limit_bytes) {
    refusal = error_response(
        413, fmt::format("the body may have {} bytes", scope_.config.body_limit_bytes));
  }
  if (refusal) {
    if (head.has_body()) keeps_alive_ = false;  // cheaper than reading the body only to drop it
    co_await send(std::move(*refusal));
    co_return keeps_alive_;
  }

  request = {std::move(head.method),
             std::move(head.path),
             std::move(head.query),
             std::move(head.headers),
             {},
             std::move(head.target)};
  BodyShare share(scope_);
  const bool has_body = co_await read_body(head, share);
  if (!has_body) co_return false;
  co_await call_handler(std::get<const HttpRoute*>(found)->handler);
  co_return keeps_alive_&& is_connected_;
}

/// For requests after which nobody knows where the next one starts.
Task<void> HttpConnection::refuse_and_close(HttpResponse response) {
  keeps_alive_ = false;
  co_await send(std::move(response));
}

/// Everything up to the empty line; nothing when the peer went away, was too slow, or was refused.
Task<std::optional<std::string>> HttpConnection::read_head() {
  std::size_t checked = 0;
  bool has_deadline = false;
  for (;;) {
    if (checked == 0 && input_.starts_with("\r\n")) input_.erase(0, 2);  // RFC 9112 section 2.2
    for (; checked < input_.size(); ++checked) {
      if (input_[checked] != '\n') continue;
      if (checked == 0 || input_[checked - 1] != '\r') {
        HttpResponse refusal = error_response(400, "a line does not end with CR LF");
        co_await refuse_and_close(std::move(refusal));
        co_return std::nullopt;
      }
      if (checked >= 3 && input_[checked - 3] == '\r' && input_[checked - 2] == '\n') {
        std::string head = input_.substr(0, checked + 1);
        input_.erase(0, checked + 1);
        co_return head;
      }
      if (checked >= scope_.config.head_limit_bytes) break;
    }
    if (input_.size() > scope_.config.head_limit_bytes) {
      HttpResponse refusal = error_response(431, "the header fields are too large");
      co_await refuse_and_close(std::move(refusal));
      co_return std::nullopt;
    }
    if (input_.empty()) {
      stream_.expires_after(scope_.config.idle_timeout);
    } else if (!has_deadline) {
      stream_.expires_after(scope_.config.head_timeout);
      has_deadline = true;
    }
    const bool has_more = co_await read_more();
    if (!has_more) co_return std::nullopt;
    is_idle_ = false;
  }
}

Task<bool> HttpConnection::read_body(const RequestHead& head, BodyShare& share) {
  if (!head.has_body()) co_return true;
  if (head.expects_continue && input_.empty()) {
    co_await write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  stream_.expires_after(scope_.config.body_timeout);
  if (head.is_chunked) co_return co_await read_chunked_body(share);
  co_return co_await read_sized_body(head.content_length, share);
}

Task<bool> HttpConnection::read_sized_body(std::uint64_t length, BodyShare& share) {
  request.body = input_.substr(0, length);
  input_.erase(0, length);
  for (;;) {
    const std::size_t have = request.body.size();
    if (!share.grow_to(have)) {
      HttpResponse refusal = error_response(429, kTooManyBodies);
      co_await refuse_and_close(std::move(refusal));
      co_return false;
    }
    if (have == length) co_return true;
    // Grows with what arrived, so that an announced length alone costs no memory.
    request.body.resize(std::min<std::uint64_t>(length, have + kBodySlice));
    error_code error;
    const std::size_t count = co_await stream_.async_read_some(
        asio::buffer(request.body.data() + have, request.body.size() - have),
        asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
    request.body.resize(have + count);
  }
}

Task<bool> HttpConnection::read_chunked_body(BodyShare& share) {
  ChunkedBody decoder(scope_.config.body_limit_bytes);
  for (;;) {
    std::string_view rest = input_;
    const ChunkedBody::State state = decoder.feed(rest, request.body);
    input_.erase(0, input_.size() - rest.size());
    std::optional<HttpResponse> refusal;
    if (state == ChunkedBody::State::kTooLarge) {
      refusal = error_response(413, "the body is too large");
    } else if (state == ChunkedBody::State::kMalformed) {
      refusal = error_response(400, "malformed chunk");
    } else if (!share.grow_to(request.body.size())) {
      refusal = error_response(429, kTooManyBodies);
    }
    if (refusal) {
      co_await refuse_and_close(std::move(*refusal));
      co_return false;
    }
    if (state == ChunkedBody::State::kDone) co_return true;
    const bool has_more = co_await read_more();
    if (!has_more) co_return false;
  }
}

/// Appends to `input_`; false at the end of the stream or past the deadline.
Task<bool> HttpConnection::read_more() {
  error_code error;
  const std::size_t count = co_await stream_.async_read_some(
      asio::buffer(chunk_), asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return false;
  input_.append(chunk_.data(), count);
  co_return true;
}

Task<void> HttpConnection::call_handler(const HttpHandler& handler) {
  std::optional<HttpResponse> failure;
  try {
    co_await handler(*this);
  } catch (const ConfigError& error) {
    failure = error_response(400, error.what());
  } catch (const std::exception& error) {
    // Not fmt::print: that throws when standard error is gone.
    const std::string line = fmt::format("{} {}: {}\n", request.method, request.path, error.what());
    std::fputs(safe_text(line).c_str(), stderr);
    failure = error_response(500, "internal error");
  }
  stop_watching();
  if (answer_ == Answer::kDone) co_return;
  if (answer_ != Answer::kNone) {  // cut short: the missing last chunk tells the client
    keeps_alive_ = false;
    co_return;
  }
  if (!failure) failure = error_response(500, "internal error");
  co_await send(std::move(*failure));
}

/// Lets the peer read the answer: closing a socket with unread input would reset the connection
/// under it.
Task<void> HttpConnection::close() {
  if (!is_connected_) co_return;
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(std::chrono::seconds(1));
  std::size_t dropped = 0;
  while (!error && dropped < kLingerBytes && answer_ != Answer::kNone) {
    dropped += co_await stream_.async_read_some(asio::buffer(chunk_),
                                                asio::redirect_error(asio::use_awaitable, error));
  }
  is_connected_ = false;
  stream_.close();
}

void HttpConnection::begin_stop() {
  is_stopping_ = true;
  if (is_idle_) disconnect();
}

void HttpConnection::disconnect() {
  is_connected_ = false;
  stream_.close();
  if (auto callback = std::exchange(on_disconnect_, nullptr)) callback();
}

void HttpConnection::on_disconnect(std::function<void()> callback) {
  if (!is_connected_) {
    callback();
    return;
  }
  on_disconnect_ = std::move(callback);
  if (!is_watching_) watch_peer();
}

/// Waits for the end of the stream while the handler works. Bytes of a next request stay in the
/// socket until this one is answered; behind them the end cannot be read, only asked for.
void HttpConnection::watch_peer() {
  is_watching_ = true;
  const auto on_readable = [self = shared_from_this()](error_code error) {
    if (error || !self->is_watching_) return;
    char byte = 0;
    const auto count =
        ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      self->disconnect();
    } else if (count < 0) {
      self->watch_peer();
    } else {
      self->poll_peer();
    }
  };
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                              asio::bind_cancellation_slot(stop_watching_.slot(), on_readable));
}

void HttpConnection::poll_peer() {
  if (has_hung_up(stream_.socket().native_handle())) return disconnect();
  peer_poll_.expires_after(kPeerPoll);
  peer_poll_.async_wait([self = shared_from_this()](error_code error) {
    if (!error && self->is_watching_ && self->is_connected_) self->poll_peer();
  });
}

void HttpConnection::stop_watching() {
  on_disconnect_ = nullptr;
  if (!is_watching_) return;
  is_watching_ = false;
  peer_poll_.cancel();
  stop_watching_.emit(asio::cancellation_type::all);
}

}  // namespace slime::net
