#include "net/http_upstream.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <vector>

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kMaxInterimAnswers = 8;
constexpr std::uint32_t kAnswerHeadLimit = 64 << 10;

/// Who is there no more is noticed after a minute of silence, however long an answer may take.
void keep_watch(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace

std::shared_ptr<HttpUpstream> HttpUpstream::make(const asio::any_io_executor& executor) {
  auto& context = static_cast<asio::io_context&>(asio::query(executor, asio::execution::context));
  return std::make_shared<HttpUpstream>(tcp::socket(context));
}

tl::unexpected<Error> HttpUpstream::problem(const char* what, const error_code& error) const {
  return failure(fmt::format("{}: {}", what, why_closed_.empty() ? error.message() : why_closed_));
}

asio::awaitable<Expected<void>> HttpUpstream::connect(std::string host, std::uint16_t port,
                                                      std::chrono::milliseconds timeout) {
  const auto self = shared_from_this();
  const auto strand = co_await asio::this_coro::executor;
  error_code error;
  std::vector<tcp::endpoint> endpoints;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error) {
    endpoints.emplace_back(address, port);
  } else {
    tcp::resolver resolver(strand);
    const std::string service = std::to_string(port);
    const auto found = co_await resolver.async_resolve(
        host, service, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return problem("cannot resolve the host", error);
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }
  if (!why_closed_.empty()) co_return problem("cannot connect", error);
  asio::steady_timer deadline(strand, timeout);
  deadline.async_wait([self](error_code late) {
    if (!late) self->close("no connection in time");
  });
  co_await asio::async_connect(socket_, endpoints,
                               asio::redirect_error(asio::use_awaitable, error));
  deadline.cancel();
  if (error || !why_closed_.empty()) co_return problem("cannot connect", error);
  keep_watch(socket_.native_handle());
  co_return Expected<void>();
}

asio::awaitable<Expected<void>> HttpUpstream::send(const std::string& head,
                                                   const std::string& body) {
  const auto self = shared_from_this();
  is_reusable_ = false;
  error_code error;
  const std::array<asio::const_buffer, 2> buffers{asio::buffer(head), asio::buffer(body)};
  co_await asio::async_write(socket_, buffers, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return problem("cannot send", error);
  co_return Expected<void>();
}

asio::awaitable<Expected<HttpUpstream::Head>> HttpUpstream::read_head(bool is_of_head_request) {
  const auto self = shared_from_this();
  for (int i = 0; i < kMaxInterimAnswers; ++i) {
    parser_.emplace();
    parser_->header_limit(kAnswerHeadLimit);
    parser_->body_limit(boost::none);
    parser_->skip(is_of_head_request);
    error_code error;
    co_await http::async_read_header(socket_, buffer_, *parser_,
                                     asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return problem("no answer", error);
    const auto& message = parser_->get();
    const int status = static_cast<int>(message.result_int());
    if (status >= 100 && status < 200 && status != 101) continue;
    if (status < 200 || status > 599) {
      error = http::make_error_code(http::error::bad_status);
      co_return problem("no answer", error);
    }
    Head head{.status = status, .headers = {}, .length = std::nullopt};
    for (const auto& field : message)
      head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    if (const auto length = parser_->content_length()) head.length = *length;
    if (!is_of_head_request && parser_->is_done()) head.length = 0;
    co_return head;
  }
  const error_code too_many = http::make_error_code(http::error::bad_status);
  co_return problem("nothing but interim answers", too_many);
}

asio::awaitable<Expected<std::string>> HttpUpstream::read_some() {
  const auto self = shared_from_this();
  while (!parser_->is_done()) {
    auto& body = parser_->get().body();
    body.data = piece_.data();
    body.size = piece_.size();
    error_code error;
    co_await http::async_read_some(socket_, buffer_, *parser_,
                                   asio::redirect_error(asio::use_awaitable, error));
    const std::size_t count = piece_.size() - body.size;
    if (error && error != http::error::need_buffer) co_return problem("the answer ends", error);
    if (count > 0) co_return std::string(piece_.data(), count);
  }
  is_reusable_ = parser_->get().keep_alive() && !parser_->get().need_eof() && buffer_.size() == 0;
  co_return std::string();
}

bool HttpUpstream::is_alive() {
  if (!socket_.is_open()) return false;
  char byte = 0;
  const auto count = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void HttpUpstream::close(const std::string& why) {
  if (why_closed_.empty()) why_closed_ = why;
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace slime::net
