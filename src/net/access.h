#pragma once

/// Access rules of HTTP routes: keys, and the two checks that keep a web page in the user's browser
/// away from a server on loopback.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/request_head.h"

namespace slime::net {

/// What a route can do decides who may call it. A route without a class does not compile.
enum class RouteClass {
  kProbe,      // health and metrics: no key
  kInference,  // the API key, when one is set
  kControl,    // changes the server: the admin key when one is set, else the API key
  kWeights,    // changes the weights or what they are called: the admin key, or no key at all
  kDebug,      // as kControl, and only when the server was started with debug routes
};

struct AccessRules {
  std::string api_key = {};        // empty: none
  std::string admin_api_key = {};  // empty: none
  bool allows_debug = false;
  /// Without a key, a loopback server trusts everybody on the machine, which must not include every
  /// web page in the browser: Host must not be a public name (DNS rebinding) and Origin, if sent,
  /// must be local.
  bool checks_host = true;
  std::vector<std::string> allowed_hosts = {};  // further names, as in "Host:" without the port
  bool has_host_flag = false;                   // the command has --allowed-host, which adds one
};

/// The refusal, or nothing when the request may proceed.
std::optional<HttpResponse> find_refusal(const AccessRules& rules, RouteClass route_class,
                                         const RequestHead& head);

/// True of the origin of a page of another host: neither loopback nor one of allowed_hosts.
bool is_foreign_origin(const AccessRules& rules, std::string_view origin);

/// Takes the same time for every wrong key of up to 512 bytes; longer ones never match.
bool keys_equal(std::string_view given, std::string_view expected);

/// "localhost", "127.x.y.z", "::1", with or without brackets.
bool is_loopback_host(std::string_view host);

}  // namespace slime::net
