#include "gateway/forwarded_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace slime::gateway {
namespace {

using net::HttpHeaders;
using net::HttpRequest;

constexpr auto kHopHeaders = std::to_array<std::string_view>(
    {"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
     "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length"});

bool is_hop_header(const HttpHeaders& all, std::string_view name) {
  const auto is_same = [name](std::string_view each) {
    return net::equals_ignoring_case(each, name);
  };
  if (std::ranges::any_of(kHopHeaders, is_same)) return true;
  for (const auto& [key, value] : all) {  // "Connection: X-Own" makes X-Own one
    if (!net::equals_ignoring_case(key, "Connection")) continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      std::string_view word = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      while (word.starts_with(' ')) word.remove_prefix(1);
      while (word.ends_with(' ')) word.remove_suffix(1);
      if (is_same(word)) return true;
    }
  }
  return false;
}

}  // namespace

std::string request_head_for(const HttpRequest& request, const std::string& authority,
                             const std::string& more) {
  std::string head =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, authority);
  for (const auto& [name, value] : request.headers) {
    if (net::equals_ignoring_case(name, "Host") || net::equals_ignoring_case(name, "Origin") ||
        net::equals_ignoring_case(name, "Expect") || is_hop_header(request.headers, name)) {
      continue;
    }
    head += fmt::format("{}: {}\r\n", name, value);
  }
  head += more;
  if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD"))
    head += fmt::format("Content-Length: {}\r\n", request.body.size());
  return head + "\r\n";
}

HttpHeaders headers_for_client(const HttpHeaders& headers) {
  HttpHeaders kept;
  for (const auto& [name, value] : headers) {
    if (net::equals_ignoring_case(name, "Date") ||
        net::equals_ignoring_case(name, "Content-Type") || is_hop_header(headers, name)) {
      continue;
    }
    kept.emplace_back(name, value);
  }
  return kept;
}

}  // namespace slime::gateway
