#include "text/grammar/schema_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/field_reader.h"

namespace slime::text {
namespace {

struct SchemaKeyword {
  std::string_view name;
  uint8_t types;  // of which it says something; 0: of all
};

/// Keywords that are bound. Others are annotations, as the specification has it, or refused.
constexpr auto kSchemaKeywords = std::to_array<SchemaKeyword>({
    {"type", 0},
    {"enum", 0},
    {"const", 0},
    {"anyOf", 0},
    {"oneOf", 0},
    {"allOf", 0},
    {"$ref", 0},
    {"minimum", kNumberTypes},
    {"maximum", kNumberTypes},
    {"exclusiveMinimum", kNumberTypes},
    {"exclusiveMaximum", kNumberTypes},
    {"multipleOf", kNumberTypes},
    {"minLength", kStringType},
    {"maxLength", kStringType},
    {"pattern", kStringType},
    {"format", kStringType},
    {"items", kArrayType},
    {"prefixItems", kArrayType},
    {"additionalItems", kArrayType},
    {"unevaluatedItems", kArrayType},
    {"minItems", kArrayType},
    {"maxItems", kArrayType},
    {"uniqueItems", kArrayType},
    {"properties", kObjectType},
    {"required", kObjectType},
    {"additionalProperties", kObjectType},
    {"unevaluatedProperties", kObjectType},
    {"patternProperties", kObjectType},
    {"propertyNames", kObjectType},
    {"minProperties", kObjectType},
    {"maxProperties", kObjectType},
});

constexpr auto kRefusedKeywords = std::to_array<std::string_view>(
    {"not", "if", "contains", "minContains", "maxContains", "dependentRequired", "dependentSchemas",
     "dependencies", "$dynamicRef", "$recursiveRef"});

constexpr auto kTypeNames = std::to_array<std::pair<std::string_view, uint8_t>>({
    {"null", kNullType},
    {"boolean", kBooleanType},
    {"integer", kIntegerType},
    {"number", kNumberTypes},
    {"string", kStringType},
    {"array", kArrayType},
    {"object", kObjectType},
});

void check_keywords(const SchemaSource& source, const std::string& where) {
  for (const std::string_view keyword : kRefusedKeywords) {
    if (source.object().contains(keyword)) {
      refuse_schema(where, source.place_of(keyword),
                    fmt::format("{} is not supported: it cannot be bound token by token", keyword));
    }
  }
}

/// "~1" is "/", "~0" is "~"; "%2F" was decoded before.
std::string pointer_token(std::string_view token) {
  std::string name;
  for (std::size_t at = 0; at < token.size(); ++at) {
    if (token[at] == '~' && at + 1 < token.size() && (token[at + 1] == '0' || token[at + 1] == '1'))
      name += token[++at] == '0' ? '~' : '/';
    else
      name += token[at];
  }
  return name;
}

std::string escaped_token(std::string_view name) {
  std::string token;
  for (const char c : name) {
    if (c == '~')
      token += "~0";
    else if (c == '/')
      token += "~1";
    else
      token += c;
  }
  return token;
}

std::string without_percent(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    if (text[at] == '%' && at + 2 < text.size() &&
        std::from_chars(text.data() + at + 1, text.data() + at + 3, byte, 16).ptr ==
            text.data() + at + 3) {
      plain += static_cast<char>(byte);
      at += 2;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

uint8_t type_named(const json::value& name, const SchemaSource& source, const std::string& where) {
  if (name.is_string()) {
    for (const auto& [known, types] : kTypeNames) {
      if (name.get_string() == known) return types;
    }
  }
  refuse_schema(where, source.place_of("type"),
                fmt::format("type must be null, boolean, integer, number, string, array or object, "
                            "or a list of them, not {}",
                            shown(name)));
}

}  // namespace

const json::value* SchemaSource::find(std::string_view keyword) const {
  if ((taken & kRefs) != 0 && (keyword == "$ref" || keyword == "allOf")) return nullptr;
  if ((taken & kAnyOf) != 0 && keyword == "anyOf") return nullptr;
  if ((taken & kOneOf) != 0 && keyword == "oneOf") return nullptr;
  return object().if_contains(keyword);
}

std::string SchemaSource::place_of(std::string_view keyword) const {
  return fmt::format("{}/{}", place, escaped_token(keyword));
}

SchemaSource SchemaSource::member(std::string_view keyword) const {
  return {.schema = &object().at(keyword), .place = place_of(keyword)};
}

void refuse_schema(const std::string& where, const std::string& place, std::string_view problem) {
  throw ConfigError(fmt::format("{}, {}: {}", where, place, problem));
}

bool SchemaRoot::is_reference(const json::value& schema) {
  if (!schema.is_object() || !schema.get_object().contains("$ref")) return false;
  const SchemaSource rest{.schema = &schema, .taken = SchemaSource::kRefs};
  return !schema.get_object().contains("allOf") && !has_meaning(rest) &&
         std::none_of(
             kRefusedKeywords.begin(), kRefusedKeywords.end(),
             [&](std::string_view keyword) { return schema.get_object().contains(keyword); });
}

const json::value* SchemaRoot::at_pointer(std::string_view pointer) const {
  const json::value* at = root_;
  while (!pointer.empty() && at != nullptr) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string token = pointer_token(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    if (const auto* object = at->if_object()) {
      at = object->if_contains(token);
    } else if (const auto* array = at->if_array()) {
      std::size_t index = 0;
      const auto [rest, error] = std::from_chars(token.data(), token.data() + token.size(), index);
      const bool is_index = error == std::errc() && rest == token.data() + token.size();
      at = is_index && index < array->size() ? &(*array)[index] : nullptr;
    } else {
      return nullptr;
    }
  }
  return at;
}

SchemaSource SchemaRoot::target(const SchemaSource& source) const {
  const json::value& reference = source.object().at("$ref");
  const std::string place = source.place_of("$ref");
  if (!reference.is_string())
    refuse_schema(where_, place, fmt::format("$ref must be a text, not {}", shown(reference)));
  const std::string_view uri = reference.get_string();
  if (uri != "#" && !uri.starts_with("#/")) {
    refuse_schema(where_, place,
                  fmt::format("$ref must point into this schema, as #/$defs/name does, not {}",
                              shown(reference)));
  }
  const std::string pointer = without_percent(uri.substr(1));
  const json::value* schema = at_pointer(pointer);
  if (schema == nullptr)
    refuse_schema(where_, place, fmt::format("nothing is at {}", shown(reference)));
  return {.schema = schema, .place = "#" + pointer};
}

SchemaSource SchemaRoot::resolve(const SchemaSource& source) const {
  std::set<const json::value*> seen;
  SchemaSource at = source;
  while (is_reference(*at.schema)) {
    if (!seen.insert(at.schema).second)
      refuse_schema(where_, at.place_of("$ref"), "$ref refers to itself: no value fits");
    at = target(at);
  }
  return at;
}

bool SchemaRoot::flatten(const SchemaSource& source, std::vector<const json::value*>& above,
                         std::set<const json::value*>& seen, std::vector<SchemaSource>& out,
                         std::string& why) const {
  if (const bool* is_any = source.schema->if_bool()) {
    if (!*is_any) why = source.place;
    return *is_any;
  }
  if (!source.schema->is_object()) {
    refuse_schema(
        where_, source.place,
        fmt::format("a schema must be an object, true or false, not {}", shown(*source.schema)));
  }
  if (std::find(above.begin(), above.end(), source.schema) != above.end())
    refuse_schema(where_, source.place, "the schema refers to itself: no value fits");
  // What one place says twice it says once; the same with other keywords taken is another source.
  if (source.taken == SchemaSource::kNothing && !seen.insert(source.schema).second) return true;
  check_keywords(source, where_);
  SchemaSource rest = source;
  rest.taken |= SchemaSource::kRefs;
  above.push_back(source.schema);
  bool fits = true;
  if (has_meaning(rest)) out.push_back(rest);
  if (source.find("$ref") != nullptr) fits = flatten(target(source), above, seen, out, why);
  if (const json::value* all = source.find("allOf"); all != nullptr && fits) {
    const auto* list = all->if_array();
    if (list == nullptr || list->empty())
      refuse_schema(where_, source.place_of("allOf"), "allOf must be a list of schemas");
    for (std::size_t i = 0; i < list->size() && fits; ++i) {
      fits = flatten({.schema = &(*list)[i], .place = fmt::format("{}/allOf/{}", source.place, i)},
                     above, seen, out, why);
    }
  }
  above.pop_back();
  return fits;
}

std::optional<std::vector<SchemaSource>> SchemaRoot::flatten(
    const std::vector<SchemaSource>& sources, std::string& why) const {
  std::vector<SchemaSource> flat;
  std::vector<const json::value*> above;
  std::set<const json::value*> seen;
  for (const SchemaSource& source : sources) {
    if (!flatten(source, above, seen, flat, why)) return std::nullopt;
  }
  return flat;
}

std::optional<uint8_t> declared_types(const SchemaSource& source, const std::string& where) {
  const json::value* type = source.find("type");
  if (type == nullptr) return std::nullopt;
  const auto* list = type->if_array();
  if (list == nullptr) return type_named(*type, source, where);
  uint8_t types = 0;
  for (const json::value& name : *list) types |= type_named(name, source, where);
  if (types == 0) refuse_schema(where, source.place_of("type"), "type is an empty list");
  return types;
}

uint8_t implied_types(const SchemaSource& source) {
  uint8_t types = 0;
  for (const SchemaKeyword& keyword : kSchemaKeywords) {
    if (keyword.types != 0 && source.object().contains(keyword.name)) types |= keyword.types;
  }
  return types;
}

uint8_t type_of_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return kNullType;
    case json::kind::bool_:
      return kBooleanType;
    case json::kind::int64:
    case json::kind::uint64:
      return kIntegerType;
    case json::kind::double_:
      return std::floor(value.get_double()) == value.get_double() ? kIntegerType : kFractionType;
    case json::kind::string:
      return kStringType;
    case json::kind::array:
      return kArrayType;
    case json::kind::object:
      return kObjectType;
  }
  return 0;
}

bool has_meaning(const SchemaSource& source) {
  return std::any_of(
      kSchemaKeywords.begin(), kSchemaKeywords.end(),
      [&](const SchemaKeyword& keyword) { return source.find(keyword.name) != nullptr; });
}

}  // namespace slime::text
