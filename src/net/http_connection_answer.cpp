// The half of a connection that writes answers.

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <ctime>

#include "core/error.h"
#include "net/http_connection.h"

namespace slime::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kWriteSlice = 1 << 20;
/// What clients wait before they try again, where the answer does not say otherwise.
constexpr int kRetrySeconds = 1;

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  return {text.data(),
          std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

std::string HttpConnection::response_head(const HttpResponse& response,
                                          std::optional<std::uint64_t> length) const {
  const int status = response.status;
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_phrase(status), http_date());
  if (!response.content_type.empty())
    head += fmt::format("Content-Type: {}\r\n", response.content_type);
  if (length) head += fmt::format("Content-Length: {}\r\n", *length);
  if (!length && !is_http_1_0_) head += "Transfer-Encoding: chunked\r\n";
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  for (const auto& [name, value] : cross_origin_) head += fmt::format("{}: {}\r\n", name, value);
  if ((status == 429 || status == 503) && !find_header(response.headers, "Retry-After"))
    head += fmt::format("Retry-After: {}\r\n", kRetrySeconds);
  if (!keeps_alive_) {
    head += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    head += "Connection: keep-alive\r\n";
  }
  return head + "\r\n";
}

Task<void> HttpConnection::send(HttpResponse response) {
  check(answer_ == Answer::kNone, "a request is answered once");
  answer_ = Answer::kDone;
  if (is_stopping_) keeps_alive_ = false;
  std::string head = response_head(response, response.body.size());
  if (is_head_request_) response.body.clear();
  if (response.body.size() < kWriteSlice) {  // one packet where it fits
    head += response.body;
    co_await write(head);
    co_return;
  }
  co_await write(head);
  co_await write(response.body);
}

Task<void> HttpConnection::begin_events(HttpHeaders headers) {
  check(answer_ == Answer::kNone, "a request is answered once");
  answer_ = Answer::kEvents;
  if (is_http_1_0_ || is_stopping_) keeps_alive_ = false;
  HttpResponse response{.content_type = "text/event-stream", .headers = std::move(headers)};
  response.headers.emplace_back("Cache-Control", "no-cache");
  const std::string head = response_head(response, std::nullopt);
  co_await write(head);
}

Task<void> HttpConnection::write_event(std::string data, std::string name) {
  std::string frame;
  frame.reserve(data.size() + name.size() + 32);
  if (!name.empty()) frame = "event: " + name + "\n";
  frame += "data: ";
  frame += data;
  return write_frame(std::move(frame));
}

Task<void> HttpConnection::write_comment(std::string text) { return write_frame(": " + text); }

/// Its lines, without the empty one that ends it.
Task<void> HttpConnection::write_frame(std::string frame) {
  check(answer_ == Answer::kEvents, "events follow begin_events");
  frame += "\n\n";
  if (!is_http_1_0_) frame = fmt::format("{:x}\r\n{}\r\n", frame.size(), frame);
  co_await write(frame);
}

Task<void> HttpConnection::end_events() {
  check(answer_ == Answer::kEvents, "events follow begin_events");
  answer_ = Answer::kDone;
  if (!is_http_1_0_) co_await write("0\r\n\r\n");
}

Task<void> HttpConnection::begin_body(HttpResponse response, std::optional<std::uint64_t> length) {
  check(answer_ == Answer::kNone, "a request is answered once");
  answer_ = Answer::kBody;
  if ((is_http_1_0_ && !length) || is_stopping_) keeps_alive_ = false;
  is_chunked_ = !length && !is_http_1_0_ && !is_head_request_;
  const std::string head = response_head(response, length);
  co_await write(head);
}

Task<void> HttpConnection::write_body(std::string bytes) {
  check(answer_ == Answer::kBody, "pieces follow begin_body");
  if (bytes.empty() || is_head_request_) co_return;  // an empty chunk would be the last
  if (is_chunked_) bytes = fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
  co_await write(bytes);
}

Task<void> HttpConnection::end_body() {
  check(answer_ == Answer::kBody, "pieces follow begin_body");
  answer_ = Answer::kDone;
  if (is_chunked_) co_await write("0\r\n\r\n");
}

/// `bytes` live until the write is done: they belong to the caller's coroutine.
Task<void> HttpConnection::write(std::string_view bytes) {
  while (!bytes.empty() && is_connected_) {
    const std::string_view slice = bytes.substr(0, kWriteSlice);
    bytes.remove_prefix(slice.size());
    stream_.expires_after(scope_.config.write_timeout);
    error_code error;
    co_await asio::async_write(stream_, asio::buffer(slice),
                               asio::redirect_error(asio::use_awaitable, error));
    stream_.expires_never();
    if (error) disconnect();
  }
}

}  // namespace slime::net
