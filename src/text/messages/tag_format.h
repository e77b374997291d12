#pragma once

/// Formats of structural tags (text/grammar/structural_tag_reader.h), as JSON.

#include <string_view>
#include <utility>

#include "core/json.h"

namespace slime::text {

inline json::object format_of_text(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}
inline json::object format_of_any_text() { return {{"type", "any_text"}}; }
inline json::object format_of_regex(std::string_view pattern) {
  return {{"type", "regex"}, {"pattern", pattern}};
}
inline json::object format_of_schema(json::value schema) {
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}
/// One behind the other; at least one.
inline json::object format_of_row(json::array formats) {
  if (formats.size() == 1) return std::move(formats.front().get_object());
  return {{"type", "sequence"}, {"elements", std::move(formats)}};
}
inline json::object format_of_choice(json::array formats) {
  return {{"type", "or"}, {"elements", std::move(formats)}};
}
/// `type`: optional, star, plus.
inline json::object format_of_repetition(std::string_view type, json::object format) {
  return {{"type", type}, {"content", std::move(format)}};
}
inline json::object format_of_tag(std::string_view begin, json::object content,
                                  std::string_view end) {
  return {{"type", "tag"}, {"begin", begin}, {"content", std::move(content)}, {"end", end}};
}

}  // namespace slime::text
