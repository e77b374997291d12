#include "engine/chat/tool_arguments.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/print.h"

namespace slime::engine {
namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

json::value arguments_for(const json::value& given, const TemplateTraits& traits) {
  const json::string* text = given.if_string();
  const bool is_none = given.is_null() || (text != nullptr && is_blank(*text));
  if (text != nullptr && !is_none) {
    if (traits.takes_text_arguments) return *text;
    std::optional<json::value> parsed = try_parse_json(*text);
    if (parsed && parsed->is_object() && big_integer_digits(*parsed) == nullptr)
      return *std::move(parsed);
    return json::object{{"_raw", *text}};
  }
  const json::value object = is_none ? json::value(json::object()) : given;
  if (traits.takes_object_arguments || !traits.takes_text_arguments) return object;
  return json::value(text::jinja::to_json(text::jinja::from_json(object), {}));
}

}  // namespace slime::engine
