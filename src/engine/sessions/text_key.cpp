#include "engine/sessions/text_key.h"

#include <cmath>
#include <map>
#include <optional>

#include "text/messages/white_space.h"

namespace slime::engine {
namespace {

/// The member that has the text of a call, where a protocol takes objects alone and the text is none.
constexpr std::string_view kRawText = "_raw";

void append_canonical(const json::value& value, std::string& out) {
  if (big_integer_digits(value) != nullptr) {
    out += json_text(value);
  } else if (const json::object* object = value.if_object()) {
    std::map<std::string_view, const json::value*> members;
    for (const auto& [name, member] : *object) {
      if (!member.is_null()) members.emplace(name, &member);
    }
    out += '{';
    for (const auto& [name, member] : members) {
      out += json_text(name) + ':';
      append_canonical(*member, out);
      out += ',';
    }
    out += '}';
  } else if (const json::array* list = value.if_array()) {
    out += '[';
    for (const json::value& each : *list) {
      append_canonical(each, out);
      out += ',';
    }
    out += ']';
  } else if (value.is_double() && std::abs(value.get_double()) < 1e15 &&
             value.get_double() == std::trunc(value.get_double())) {
    out += std::to_string(static_cast<int64_t>(value.get_double()));
  } else {
    out += json_text(value);
  }
}

}  // namespace

std::string canonical_json(const json::value& value) {
  std::string out;
  append_canonical(value, out);
  return out;
}

std::string canonical_arguments(const json::value& arguments) {
  const json::object* object = arguments.if_object();
  const json::value* raw = object == nullptr ? nullptr : object->if_contains(kRawText);
  if (raw != nullptr && raw->is_string())
    return std::string(text::without_white_space_around(raw->get_string()));
  const json::string* text = arguments.if_string();
  if (text == nullptr) return arguments.is_null() ? "{}" : canonical_json(arguments);
  const std::string_view given = text::without_white_space_around(*text);
  if (given.empty()) return "{}";
  const std::optional<json::value> parsed = try_parse_json(given);
  return parsed && !parsed->is_string() ? canonical_json(*parsed) : std::string(given);
}

}  // namespace slime::engine
