#include "engine/http/request_body.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::engine {
namespace {

constexpr std::size_t kMostKeys = std::size_t{1} << 17;

}  // namespace

json::object parse_body(std::string_view body) {
  // Objects cost much for each key; no request has so many.
  if (count_keys(body, kMostKeys) > kMostKeys)
    throw ConfigError(fmt::format("request body: has more than {} keys in all", kMostKeys));
  json::value value = parse_json(body, "request body");
  if (const auto key = find_duplicate_key(body))
    throw ConfigError(fmt::format("request body: the key \"{}\" stands twice in one object", *key));
  if (!value.is_object()) throw ConfigError("request body: must be a JSON object");
  return std::move(value.get_object());
}

json::object parse_optional_body(std::string_view body) {
  return body.empty() ? json::object{} : parse_body(body);
}

void require_none(const std::vector<std::string>& problems) {
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace slime::engine
