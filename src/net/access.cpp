#include "net/access.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace slime::net {
namespace {

/// "[::1]:30000" -> "::1", "localhost:30000" -> "localhost".
std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    return end == std::string_view::npos ? std::string_view{} : authority.substr(1, end - 1);
  }
  return authority.substr(0, authority.find(':'));
}

bool is_ip_literal(std::string_view host) {
  if (host.find(':') != std::string_view::npos) return true;  // only IPv6 has colons inside
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

/// A name that public DNS can point at this machine has a dot; addresses and plain machine names
/// are out of its reach.
bool is_public_name(std::string_view host) {
  if (is_ip_literal(host) || is_loopback_host(host)) return false;
  return host.find('.') != std::string_view::npos && !host.ends_with(".localhost");
}

bool is_listed(const AccessRules& rules, std::string_view host) {
  return std::any_of(rules.allowed_hosts.begin(), rules.allowed_hosts.end(),
                     [&](const std::string& name) { return equals_ignoring_case(name, host); });
}

/// Of either header that clients send.
std::string_view key_of(const RequestHead& head) {
  const auto value = find_header(head.headers, "Authorization");
  if (!value) return find_header(head.headers, "X-API-Key").value_or(std::string_view{});
  if (value->size() < 7 || !equals_ignoring_case(value->substr(0, 7), "Bearer ")) return {};
  return value->substr(7);
}

std::string how_allowed(const AccessRules& rules) {
  return rules.has_host_flag ? "--allowed-host adds one" : "use 127.0.0.1 or localhost";
}

}  // namespace

bool keys_equal(std::string_view given, std::string_view expected) {
  constexpr std::size_t kMaxKey = 512;
  std::array<unsigned char, kMaxKey> left{}, right{};
  std::copy_n(given.begin(), std::min(given.size(), kMaxKey), left.begin());
  std::copy_n(expected.begin(), std::min(expected.size(), kMaxKey), right.begin());
  volatile unsigned difference = given.size() == expected.size() && given.size() <= kMaxKey ? 0 : 1;
  for (std::size_t i = 0; i < kMaxKey; ++i) difference = difference | (left[i] ^ right[i]);
  return difference == 0;
}

bool is_loopback_host(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host == "::1" || equals_ignoring_case(host, "localhost") ||
         (host.starts_with("127.") && is_ip_literal(host));
}

bool is_foreign_origin(const AccessRules& rules, std::string_view origin) {
  const std::size_t slashes = origin.find("://");
  if (slashes == std::string_view::npos) return true;  // "null": a sandboxed page
  const std::string_view host = without_port(origin.substr(slashes + 3));
  return !is_loopback_host(host) && !is_listed(rules, host);
}

std::optional<HttpResponse> find_refusal(const AccessRules& rules, RouteClass route_class,
                                         const RequestHead& head) {
  if (rules.checks_host) {
    const std::string_view host = without_port(find_header(head.headers, "Host").value_or(""));
    if (is_public_name(host) && !is_listed(rules, host)) {
      return error_response(403, "Host is not a name of this server; " + how_allowed(rules));
    }
    const auto origin = find_header(head.headers, "Origin");
    if (origin && is_foreign_origin(rules, *origin)) {
      return error_response(
          403, "requests from web pages of other hosts are refused; " + how_allowed(rules));
    }
  }
  if (route_class == RouteClass::kProbe) return std::nullopt;
  if (route_class == RouteClass::kDebug && !rules.allows_debug) {
    return error_response(404, "debug routes are off");
  }
  if (route_class == RouteClass::kWeights && rules.admin_api_key.empty() &&
      !rules.api_key.empty()) {
    return error_response(403,
                          "who may ask for tokens may not change the weights: this route needs an "
                          "admin key, and the server was started without one "
                          "(--admin-api-key-file)");
  }
  const bool is_control = route_class != RouteClass::kInference;
  const std::string& key =
      is_control && !rules.admin_api_key.empty() ? rules.admin_api_key : rules.api_key;
  if (key.empty() || keys_equal(key_of(head), key)) return std::nullopt;
  HttpResponse response{.status = 401, .body = R"({"error":"Unauthorized"})"};
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace slime::net
