#pragma once

/// Cross-origin requests of web pages (CORS): the preflight that browsers send first, and the headers
/// without which they keep an answer from the page. Only for origins that AccessRules lets through:
/// pages of this machine, and hosts that --allowed-host names.

#include <string_view>

#include "net/access.h"
#include "net/http_message.h"

namespace slime::net {

/// Headers of the answer to `head`; none where it comes from no page, or from a foreign one.
HttpHeaders cross_origin_headers(const AccessRules& rules, const RequestHead& head);

/// True of an OPTIONS request by which a browser asks whether a page may send another one.
bool is_preflight(const RequestHead& head);

/// The answer to a preflight for a path that takes `methods` ("GET, POST"). Preflights have no key;
/// what they ask about needs one.
HttpResponse preflight_response(const RequestHead& head, std::string_view methods);

}  // namespace slime::net
