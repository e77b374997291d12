#pragma once

/// HTTP/1.1 client for JSON services: remote reward models, engines elsewhere. One connection per
/// call, no redirects, no TLS (https is refused by name), every call with a deadline and a bound on
/// the answer.

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>

#include "core/expected.h"
#include "net/http_message.h"

namespace slime::net {

struct HttpCall {
  std::string method = "GET";
  std::string url;  // "http://127.0.0.1:30000/generate?x=1"
  std::string body = {};
  std::string content_type = "application/json";  // sent with a body only
  HttpHeaders headers = {};
  std::chrono::milliseconds timeout{
      60'000};  // from resolving the name to the last byte of the answer
  std::size_t response_limit_bytes = std::size_t{256} << 20;
};

/// Any answer the server gave, refusals included, is a response; an error is that there was none.
/// When `stop` is requested, from any thread, the connection is closed and the call returns an
/// error at once (the resolving of a name is waited for).
Expected<HttpResponse> http_call(const HttpCall& call, const std::stop_token& stop = {});

/// The same on the executor of the calling coroutine.
boost::asio::awaitable<Expected<HttpResponse>> async_http_call(HttpCall call);

/// Why the server of `url` takes no connection; nothing: it does. Nothing is sent.
std::optional<Error> why_unreachable(const std::string& url, std::chrono::milliseconds timeout);

}  // namespace slime::net
