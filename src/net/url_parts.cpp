#include "net/url_parts.h"

#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

namespace slime::net {

std::optional<UrlParts> url_parts(std::string_view text) {
  const auto url = boost::urls::parse_uri(text);
  if (!url) return std::nullopt;
  UrlParts parts;
  parts.scheme = url->scheme();
  parts.host = url->host_address();
  parts.port = url->has_port() && !url->port().empty() ? std::string(url->port())
                                                       : (parts.scheme == "https" ? "443" : "80");
  parts.authority = url->encoded_host_and_port();
  parts.target = url->encoded_path();
  if (url->has_query()) parts.target += "?" + std::string(url->encoded_query());
  if (!parts.target.starts_with('/')) parts.target.insert(0, "/");
  parts.has_login = url->has_userinfo();
  if (parts.has_login) parts.login = url->userinfo();
  return parts;
}

}  // namespace slime::net
