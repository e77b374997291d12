#pragma once

/// HTTP responses of refused requests.

#include <string>
#include <string_view>

#include "engine/http/api_error.h"
#include "net/http_message.h"

namespace slime::engine {

inline net::HttpResponse openai_error_response(const ApiError& error) {
  return {.status = error.status(), .body = json_text(openai_error(error))};
}

inline net::HttpResponse anthropic_error_response(const ApiError& error,
                                                  std::string_view request_id) {
  net::HttpResponse response{.status = error.status(),
                             .body = json_text(anthropic_error(error, request_id))};
  response.headers.emplace_back("request-id", std::string(request_id));
  return response;
}

}  // namespace slime::engine
