#include "view/guarded_route.h"

#include <fmt/format.h>

#include <optional>

#include "core/error.h"

namespace slime::view {

using net::HttpRequest;
using net::HttpResponse;

net::HttpHeaders page_headers() {
  return {{"Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
           "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cache-Control", "no-store"}};
}

std::optional<HttpResponse> refusal_of_origin(const HttpRequest& request) {
  const auto origin = request.header("Origin");
  if (!origin) return std::nullopt;
  const std::string own = fmt::format("http://{}", request.header("Host").value_or(""));
  if (net::equals_ignoring_case(*origin, own)) return std::nullopt;
  return net::error_response(403, "requests of other pages are refused");
}

net::HttpRoute guarded_route(std::string path,
                             std::function<HttpResponse(const HttpRequest&)> answer) {
  const auto guarded = [answer = std::move(answer)](const HttpRequest& request) {
    HttpResponse response;
    if (auto refusal = refusal_of_origin(request)) {
      response = std::move(*refusal);
    } else {
      try {
        response = answer(request);
      } catch (const ConfigError& error) {
        response = net::error_response(400, error.what());
      }
    }
    for (auto& header : page_headers()) response.headers.push_back(std::move(header));
    return response;
  };
  return {"GET", std::move(path), net::RouteClass::kInference, net::answer_with(guarded)};
}

}  // namespace slime::view
