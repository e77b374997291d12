#include "engine/http/request_body.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::engine {

json::object parse_body(std::string_view body) {
  json::value value = parse_json(body, "request body");
  if (const auto key = find_duplicate_key(body))
    throw ConfigError(fmt::format("request body: the key \"{}\" stands twice in one object", *key));
  if (!value.is_object()) throw ConfigError("request body: must be a JSON object");
  return std::move(value.get_object());
}

}  // namespace slime::engine
