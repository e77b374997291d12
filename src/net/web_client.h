#pragma once

/// HTTPS client for files and streams of the public internet: certificates are verified, a body comes in
/// pieces as they arrive, and only silence ends a call. One connection a call; redirects are the caller's to follow, because
/// what may be sent to another host is.

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "net/http_message.h"

namespace slime::net {

struct WebSettings {
  std::string https_proxy;  // "http://proxy:3128"; empty: none
  std::string http_proxy;
  std::string no_proxy;  // hosts that need none: "localhost,.example.org", or "*"
  std::string ca_file;   // PEM; empty: the system's
  /// Longest silence of the other side, at each step.
  std::chrono::milliseconds silence_limit{10'000};
};

struct WebHead {
  int status = 0;
  HttpHeaders headers;

  std::optional<std::string_view> header(std::string_view name) const {
    return find_header(headers, name);
  }
};

struct WebCall {
  std::string method = "GET";
  std::string url;  // http:// or https://
  HttpHeaders headers = {};
  std::string body = {};  // JSON; empty: none is sent
  /// Called once, before any byte of the body; false: the body is not wanted.
  std::function<bool(const WebHead& head)> on_head = {};
  /// Called with each piece of the body.
  std::function<void(std::string_view bytes)> on_body = {};
};

/// The answer's status and headers, once the body has ended where its length says so. An error is
/// that there was no whole answer, with `is_lasting` where trying again changes nothing. What the functions
/// throw passes through.
struct WebError {
  std::string message;
  bool is_lasting = false;
};
Expected<WebHead, WebError> web_call(const WebCall& call, const WebSettings& settings,
                                     const std::stop_token& stop = {});

/// "https://host:port" of a URL, in small letters and with the port; empty where it is none of http or https.
std::string origin_of(std::string_view url);

/// `location`, as a redirect from `url` names it, as a whole URL; empty where that is none.
std::string redirected(std::string_view url, std::string_view location);

/// Everything but letters, digits and "-._~/" as %XX: a path of a URL.
std::string encoded_path(std::string_view path);

/// Whether a host of this name is reached without a proxy: by `no_proxy`, or because it is this
/// machine.
bool needs_no_proxy(std::string_view host, std::string_view no_proxy);

}  // namespace slime::net
