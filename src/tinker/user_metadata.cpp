#include "tinker/user_metadata.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::tinker {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

}  // namespace

json::object read_user_metadata(const FieldReader& body) {
  const json::object* given = body.object("user_metadata");
  if (given == nullptr) return {};
  json::object texts;
  std::size_t bytes = 0;
  for (const auto& [name, value] : *given) {
    if (value.is_null()) continue;
    const json::string text =
        value.is_string() ? value.get_string() : json::string(json_text(value));
    bytes += name.size() + text.size();
    if (bytes > kMostBytes)
      throw ConfigError(fmt::format("user_metadata: has more than {} bytes", kMostBytes));
    texts[name] = text;
  }
  return texts;
}

}  // namespace slime::tinker
