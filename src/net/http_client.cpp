#include "net/http_client.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "net/url_parts.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

Expected<UrlParts> parse_destination(const std::string& text) {
  const auto to = url_parts(text);
  if (!to) return failure(fmt::format("\"{}\" is not a URL", text));
  if (to->scheme != "http") {
    return failure(
        fmt::format("{}: only http:// works here; for https put a local proxy between", text));
  }
  if (to->has_login) return failure("a URL with a user name is refused");
  if (to->host.empty()) return failure(fmt::format("\"{}\" names no host", text));
  return *to;
}

http::request<http::string_body> to_wire(const HttpCall& call, const UrlParts& to) {
  http::request<http::string_body> request;
  request.version(11);
  request.method_string(call.method);
  request.target(to.target);
  for (const auto& [name, value] : call.headers) request.insert(name, value);
  request.set(http::field::host, to.authority);
  request.set(http::field::connection, "close");
  if (!call.body.empty()) request.set(http::field::content_type, call.content_type);
  request.body() = call.body;
  request.prepare_payload();
  return request;
}

HttpResponse from_wire(http::response<http::string_body> message) {
  HttpResponse response;
  response.status = static_cast<int>(message.result_int());
  response.content_type = std::string(message[http::field::content_type]);
  for (const auto& field : message) {
    response.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  response.body = std::move(message.body());
  return response;
}

}  // namespace

asio::awaitable<Expected<HttpResponse>> async_http_call(HttpCall call) {
  const Expected<UrlParts> to = parse_destination(call.url);
  if (!to) co_return tl::make_unexpected(to.error());
  const auto executor = co_await asio::this_coro::executor;
  error_code error;
  const auto problem = [&](std::string_view what) {
    return failure(fmt::format("{} {}: {}: {}", call.method, call.url, what, error.message()));
  };

  // One deadline for all of it: it stands still while bytes trickle in. Resolving a name cannot be
  // cancelled, but what it took is not given again.
  const auto deadline = std::chrono::steady_clock::now() + call.timeout;
  tcp::resolver resolver(executor);
  const auto endpoints = co_await resolver.async_resolve(
      to->host, to->port, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return problem("cannot resolve the host");

  boost::beast::tcp_stream stream(executor);
  stream.expires_at(deadline);
  co_await stream.async_connect(endpoints, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return problem("cannot connect");
  stream.socket().set_option(tcp::no_delay(true), error);

  http::request<http::string_body> request = to_wire(call, *to);
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return problem("cannot send");

  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(call.response_limit_bytes);
  parser.header_limit(64 << 10);
  if (call.method == "HEAD") parser.skip(true);
  co_await http::async_read(stream, buffer, parser,
                            asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return problem("no complete answer");
  co_return from_wire(parser.release());
}

std::optional<Error> why_unreachable(const std::string& url, std::chrono::milliseconds timeout) {
  const Expected<UrlParts> to = parse_destination(url);
  if (!to) return to.error();
  asio::io_context context(1);
  error_code error;
  tcp::resolver resolver(context);
  const auto endpoints = resolver.resolve(to->host, to->port, error);
  if (error) return Error{fmt::format("cannot resolve {}: {}", to->host, error.message())};
  boost::beast::tcp_stream stream(context);
  stream.expires_after(timeout);
  stream.async_connect(endpoints, [&error](error_code how, const auto&) { error = how; });
  context.run();
  if (error) return Error{fmt::format("cannot connect to {}: {}", to->authority, error.message())};
  return std::nullopt;
}

Expected<HttpResponse> http_call(const HttpCall& call, const std::stop_token& stop) {
  asio::io_context context(1);
  // What is under way when the context stops is destroyed with it, the socket included.
  Expected<HttpResponse> result = failure(fmt::format("{} {}: stopped", call.method, call.url));
  std::exception_ptr thrown;
  asio::co_spawn(context, async_http_call(call),
                 [&](std::exception_ptr exception, Expected<HttpResponse> value) {
                   thrown = exception;
                   if (!exception) result = std::move(value);
                 });
  {
    const std::stop_callback on_stop(stop, [&context] { context.stop(); });
    context.run();
  }
  if (thrown) std::rethrow_exception(thrown);
  return result;
}

}  // namespace slime::net
