#pragma once

/// One HTTP request and one response as values: what routes see, what the client sends and gets.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slime::net {

/// Name and value as they stood on the wire; names compare without regard to case.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// The value of the first header of that name.
std::optional<std::string_view> find_header(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // "GET", in capitals
  std::string path;    // percent-decoded, without the query: "/v1/loads"
  std::string query;   // as it stood, without the question mark: "include=core&dp_rank=0"
  HttpHeaders headers;
  std::string body;
  std::string target = {};  // path and query as they stood: "/v1/loads?include=core"

  std::optional<std::string_view> header(std::string_view name) const {
    return find_header(headers, name);
  }
  /// Percent-decoded. Empty when the query has no such name or its encoding is broken.
  std::optional<std::string> query_value(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpHeaders headers = {};  // besides content type, length and connection
};

/// {"error":{"message":"..."}}: the form in which SGLang refuses a request.
HttpResponse error_response(int status, std::string_view message);

/// "Not Found" for 404.
std::string_view reason_phrase(int status);

/// Replaces %XX, and + by a space when `is_query`. Nothing when a percent sign is not followed by
/// two hexadecimal digits.
std::optional<std::string> percent_decode(std::string_view text, bool is_query);

bool equals_ignoring_case(std::string_view left, std::string_view right);

}  // namespace slime::net
