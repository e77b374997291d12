#include "net/cross_origin.h"

#include <algorithm>
#include <string>

namespace slime::net {
namespace {

/// Of header names with commas between them, as a page's request names them.
bool is_list_of_names(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

HttpHeaders cross_origin_headers(const AccessRules& rules, const RequestHead& head) {
  const auto origin = find_header(head.headers, "Origin");
  if (!origin || is_foreign_origin(rules, *origin)) return {};
  return {{"Access-Control-Allow-Origin", std::string(*origin)},
          {"Access-Control-Expose-Headers", "*"},
          {"Vary", "Origin"}};
}

bool is_preflight(const RequestHead& head) {
  return head.method == "OPTIONS" && find_header(head.headers, "Origin") &&
         find_header(head.headers, "Access-Control-Request-Method");
}

HttpResponse preflight_response(const RequestHead& head, std::string_view methods) {
  HttpResponse response{.content_type = ""};
  response.headers.emplace_back("Access-Control-Allow-Methods", methods);
  const auto names = find_header(head.headers, "Access-Control-Request-Headers");
  if (names && is_list_of_names(*names))
    response.headers.emplace_back("Access-Control-Allow-Headers", *names);
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace slime::net
