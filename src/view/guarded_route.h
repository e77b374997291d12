#pragma once

/// Routes of the page with what all of them have in common: the check of Origin, the headers that tell a
/// browser what the page may do, errors as JSON.

#include <functional>
#include <string>

#include "net/http_exchange.h"

namespace slime::view {

/// Content-Security-Policy and its like, for answers of any type.
net::HttpHeaders page_headers();

/// Nothing when the request comes from no page, or from this one. Origin has to be the address that the
/// request was sent to, as Host names it.
std::optional<net::HttpResponse> refusal_of_origin(const net::HttpRequest& request);

/// GET `path`. `answer` may throw ConfigError: 400 with its text.
net::HttpRoute guarded_route(std::string path,
                             std::function<net::HttpResponse(const net::HttpRequest&)> answer);

}  // namespace slime::view
