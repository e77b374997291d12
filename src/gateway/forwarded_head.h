#pragma once

/// Heads of messages that a proxy passes on. Fields that end at a hop, and those that the proxy writes
/// itself, are left out.

#include <string>

#include "net/http_message.h"

namespace slime::gateway {

/// Of a client's request as it goes on to `authority`, "HOST:PORT". `more`: whole lines besides.
std::string request_head_for(const net::HttpRequest& request, const std::string& authority,
                             const std::string& more);

/// Of a worker's answer as it goes back.
net::HttpHeaders headers_for_client(const net::HttpHeaders& headers);

}  // namespace slime::gateway
