#pragma once

/// Connection of a proxy to a server: requests one after the other, each answer's head first and then
/// its body as it arrives.
///
/// Everything of it happens on the strand of the coroutine that has it; the socket itself belongs to
/// no strand, so a connection may be kept for another one. close() ends what is being waited for.

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/expected.h"
#include "net/http_message.h"

namespace slime::net {

class HttpUpstream final : public std::enable_shared_from_this<HttpUpstream> {
 public:
  template <typename T>
  using Task = boost::asio::awaitable<T>;

  /// `executor`: of a strand or of what is under it, whose context has the socket.
  static std::shared_ptr<HttpUpstream> make(const boost::asio::any_io_executor& executor);
  explicit HttpUpstream(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  /// `host`: a name or an address, without brackets.
  Task<Expected<void>> connect(std::string host, std::uint16_t port,
                               std::chrono::milliseconds timeout);

  /// Request line, fields and the empty line; then the body. Both outlive the call.
  Task<Expected<void>> send(const std::string& head, const std::string& body);

  struct Head {
    int status = 0;
    HttpHeaders headers;
    std::optional<std::uint64_t> length;  // of the body; unset: nobody knows yet
  };
  /// Interim answers (100, 103) are skipped. `is_of_head_request`: no body follows.
  Task<Expected<Head>> read_head(bool is_of_head_request);

  /// The next bytes of the body, as soon as there are some; empty: that was all.
  Task<Expected<std::string>> read_some();

  /// After the whole answer: whether the server takes a further request.
  bool is_reusable() const { return is_reusable_; }
  /// Whether the server has not closed it while it was kept.
  bool is_alive();
  /// The first reason counts.
  void close(const std::string& why);

 private:
  tl::unexpected<Error> problem(const char* what, const boost::system::error_code& error) const;

  boost::asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::response_parser<boost::beast::http::buffer_body>> parser_;
  std::array<char, 16 << 10> piece_;
  bool is_reusable_ = false;
  std::string why_closed_;  // by close()
};

}  // namespace slime::net
