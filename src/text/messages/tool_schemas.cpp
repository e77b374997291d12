#include "text/messages/tool_schemas.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "text/messages/json_arguments.h"
#include "text/messages/white_space.h"

namespace slime::text {
namespace {

using ParameterTypes = std::optional<uint8_t>;  // nothing: anything

/// Schemas nest and refer to each other; deeper ones say nothing.
constexpr int kMostSchemaDepth = 32;

uint8_t named_type(std::string_view name) {
  constexpr auto kTypeNames = std::to_array<std::pair<std::string_view, uint8_t>>({
      {"string", JsonTypes::kString},
      {"integer", JsonTypes::kInteger},
      {"number", JsonTypes::kInteger | JsonTypes::kNumber},
      {"boolean", JsonTypes::kBoolean},
      {"array", JsonTypes::kArray},
      {"object", JsonTypes::kObject},
      {"null", JsonTypes::kNull},
  });
  for (const auto& [known, type] : kTypeNames) {
    if (known == name) return type;
  }
  return JsonTypes::kNone;
}

uint8_t type_of_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      return JsonTypes::kString;
    case json::kind::bool_:
      return JsonTypes::kBoolean;
    case json::kind::null:
      return JsonTypes::kNull;
    case json::kind::array:
      return JsonTypes::kArray;
    case json::kind::double_:
      return JsonTypes::kNumber;
    case json::kind::object:
      return big_integer_digits(value) != nullptr ? JsonTypes::kInteger | JsonTypes::kNumber
                                                  : JsonTypes::kObject;
    default:
      return JsonTypes::kInteger | JsonTypes::kNumber;
  }
}

/// A schema's types, found by walking it. Each schema costs a step, so that references that
/// multiply end.
class TypeFinder {
 public:
  explicit TypeFinder(const json::value& root) : root_(root) {}

  ParameterTypes types_of(const json::value& schema, int depth = 0) {
    if (!schema.is_object() || depth > kMostSchemaDepth || --steps_ < 0) return std::nullopt;
    const json::object& object = schema.get_object();
    ParameterTypes types;
    const auto narrow = [&types](ParameterTypes by) {
      if (by) types = types ? static_cast<uint8_t>(*types & *by) : *by;
    };
    if (const json::value* type = object.if_contains("type")) narrow(declared(*type));
    if (const json::value* reference = object.if_contains("$ref");
        reference && reference->is_string())
      narrow(referred(reference->get_string(), depth));
    for (const char* key : {"anyOf", "oneOf"}) {
      if (const json::value* any = object.if_contains(key); any && any->is_array())
        narrow(any_of(any->get_array(), depth));
    }
    if (const json::value* all = object.if_contains("allOf"); all && all->is_array()) {
      for (const json::value& one : all->get_array()) narrow(types_of(one, depth + 1));
    }
    if (const json::value* values = object.if_contains("enum"); values && values->is_array()) {
      uint8_t found = JsonTypes::kNone;
      for (const json::value& value : values->get_array()) found |= type_of_value(value);
      narrow(found);
    }
    if (const json::value* value = object.if_contains("const")) narrow(type_of_value(*value));
    if (const json::value* nullable = object.if_contains("nullable");
        nullable && nullable->is_bool() && nullable->get_bool() && types)
      types = static_cast<uint8_t>(*types | JsonTypes::kNull);
    return types;
  }

 private:
  static ParameterTypes declared(const json::value& type) {
    if (type.is_string()) return named_type(type.get_string());
    if (!type.is_array()) return std::nullopt;
    uint8_t types = JsonTypes::kNone;
    for (const json::value& one : type.get_array()) {
      if (one.is_string()) types |= named_type(one.get_string());
    }
    return types;
  }

  ParameterTypes referred(std::string_view reference, int depth) {
    if (!reference.starts_with('#')) return std::nullopt;
    json::error_code error;
    const json::value* target = root_.find_pointer(reference.substr(1), error);
    return target == nullptr ? std::nullopt : types_of(*target, depth + 1);
  }

  /// A member that says nothing allows anything.
  ParameterTypes any_of(const json::array& members, int depth) {
    uint8_t types = JsonTypes::kNone;
    for (const json::value& member : members) {
      const ParameterTypes one = types_of(member, depth + 1);
      if (!one) return std::nullopt;
      types |= *one;
    }
    return types;
  }

  const json::value& root_;
  int steps_ = 10'000;
};

const json::object* function_of(const json::value& tool) {
  if (!tool.is_object()) return nullptr;
  const json::value* function = tool.get_object().if_contains("function");
  if (function != nullptr && function->is_object()) return &function->get_object();
  return &tool.get_object();
}

}  // namespace

ToolSchemas::ToolSchemas(const json::array& tools) {
  for (const json::value& tool : tools) {
    const json::object* function = function_of(tool);
    if (function == nullptr) continue;
    const json::value* name = function->if_contains("name");
    if (name == nullptr || !name->is_string()) continue;
    auto& parameters = tools_[std::string(name->get_string())];
    const json::value* schema = function->if_contains("parameters");
    if (schema == nullptr) schema = function->if_contains("input_schema");
    if (schema == nullptr || !schema->is_object()) continue;
    const json::value* properties = schema->get_object().if_contains("properties");
    if (properties == nullptr || !properties->is_object()) continue;
    TypeFinder finder(*schema);
    for (const auto& [key, property] : properties->get_object()) {
      const uint8_t types = finder.types_of(property).value_or(JsonTypes::kNone);
      parameters[std::string(key)] = types == JsonTypes::kNone ? JsonTypes::kString : types;
    }
  }
}

bool ToolSchemas::has_prefix(std::string_view prefix) const {
  const auto tool = tools_.lower_bound(prefix);
  return tool != tools_.end() && tool->first.starts_with(prefix);
}

uint8_t ToolSchemas::types_of(std::string_view tool, std::string_view parameter) const {
  const auto parameters = tools_.find(tool);
  if (parameters == tools_.end()) return JsonTypes::kString;
  const auto types = parameters->second.find(parameter);
  return types == parameters->second.end() ? JsonTypes::kString : types->second;
}

std::string parameter_json(std::string_view text, uint8_t types) {
  if (types != JsonTypes::kString) {
    const std::string_view value = without_white_space_around(text);
    const uint8_t found = json_types_of(value);
    if ((found & types) != 0) {
      // 3.0 where only whole numbers may be.
      const bool is_whole = (found & types) == JsonTypes::kInteger;
      return std::string(is_whole ? value.substr(0, value.find('.')) : value);
    }
    if ((types & JsonTypes::kBoolean) != 0 && value == "True") return "true";
    if ((types & JsonTypes::kBoolean) != 0 && value == "False") return "false";
  }
  std::string quoted = "\"";
  append_json_escaped(text, quoted);
  return quoted + '"';
}

}  // namespace slime::text
