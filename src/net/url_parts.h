#pragma once

/// The parts of a URL that an HTTP call needs.

#include <optional>
#include <string>
#include <string_view>

namespace slime::net {

struct UrlParts {
  std::string scheme;
  std::string host;       // to resolve: a name or an address; may be empty
  std::string port;       // or that of its scheme
  std::string authority;  // for the Host field
  std::string target;     // path and query, with / in front
  std::string login;      // "user:password", decoded
  bool has_login = false;
};

/// Nothing for a text that is no URL.
std::optional<UrlParts> url_parts(std::string_view text);

}  // namespace slime::net
