#include "text/grammar/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/field_reader.h"
#include "text/grammar/regex_reader.h"
#include "text/grammar/schema_ends.h"
#include "text/grammar/schema_members.h"
#include "text/grammar/schema_source.h"
#include "text/grammar/schema_values.h"

namespace slime::text {
namespace {

/// Where a value stands in the form with tags: text is bare in a parameter and quoted inside of one.
enum class SchemaLevel : uint8_t { kJson, kName, kParameters, kParameter };

/// Formats of texts that the engine knows.
constexpr auto kTextFormats = std::to_array<std::string_view>(
    {"email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri",
     "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"});

class SchemaReader final {
 public:
  SchemaReader(const json::value& schema, const std::string& where, const GrammarLimits& limits,
               SchemaUse& use)
      : root_(schema, where), where_(where), limits_(limits), use_(use) {}

  json::value read(SchemaForm form) {
    const SchemaLevel level =
        form == SchemaForm::kJson ? SchemaLevel::kJson : SchemaLevel::kParameters;
    const auto root = schema_of({root_.source()}, level, 0);
    if (!root) refuse_schema(where_, misfit_, "no value fits the schema");
    json::object definitions;
    while (!queue_.empty()) {
      const Definition next = queue_.front();
      queue_.pop_front();
      const auto schema = schema_of(next.sources, next.level, 1);
      if (!schema) refuse_schema(where_, misfit_, "no value fits the schema");
      definitions[next.name] = *schema;
    }
    if (!has_finite_value(*root, definitions))
      refuse_schema(where_, "#", "every value of the schema holds another one, without end");
    json::object whole = *root;
    if (!definitions.empty()) whole["$defs"] = definitions;
    return whole;
  }

 private:
  using Sources = std::vector<SchemaSource>;
  using Schema = std::optional<json::object>;

  struct Definition {
    std::string name;
    Sources sources;
    SchemaLevel level;
  };

  /// A reference to the definition that the sources become.
  json::object reference(const Sources& sources, SchemaLevel level) {
    std::vector<std::pair<const json::value*, int>> key{{nullptr, static_cast<int>(level)}};
    for (const SchemaSource& source : sources) key.emplace_back(source.schema, source.taken);
    const auto [at, is_new] = names_.try_emplace(key, fmt::format("d{}", names_.size()));
    if (is_new) queue_.push_back({at->second, sources, level});
    return {{"$ref", "#/$defs/" + at->second}};
  }

  /// A schema inside of another one: what is referred to stands in a definition, so that it may contain
  /// itself.
  Schema member(const Sources& sources, SchemaLevel level, int depth) {
    if (sources.size() > 1 || (sources.size() == 1 && sources[0].taken == 0 && refers(sources[0])))
      return reference(sources, level);
    return schema_of(sources, level, depth);
  }

  static bool refers(const SchemaSource& source) {
    return source.schema->is_object() && !SchemaRoot::is_reference(*source.schema) &&
           (source.object().contains("$ref") || source.object().contains("allOf"));
  }

  void enter(const Sources& sources, int depth) {
    const std::string& place = sources.empty() ? std::string("#") : sources.front().place;
    if (depth > limits_.schema_depth) {
      refuse_schema(where_, place,
                    fmt::format("schemas in schemas, more than {} deep", limits_.schema_depth));
    }
    if (++use_.schemas > limits_.num_schemas) {
      refuse_schema(where_, place,
                    fmt::format("more than {} schemas, with those that alternatives of "
                                "alternatives become",
                                limits_.num_schemas));
    }
  }

  /// Nothing: no value fits all sources.
  Schema schema_of(const Sources& sources, SchemaLevel level, int depth) {
    enter(sources, depth);
    if (sources.size() == 1 && SchemaRoot::is_reference(*sources[0].schema)) {
      const SchemaSource target = root_.resolve(sources[0]);
      if (level != SchemaLevel::kParameters) return reference({target}, level);
      return schema_of({target}, level, depth + 1);
    }
    const auto flat = root_.flatten(sources, misfit_);
    if (!flat) return std::nullopt;
    for (std::size_t i = 0; i < flat->size(); ++i) {
      for (const auto& [keyword, bit] :
           {std::pair("anyOf", SchemaSource::kAnyOf), std::pair("oneOf", SchemaSource::kOneOf)}) {
        if ((*flat)[i].find(keyword) != nullptr)
          return alternatives(*flat, i, keyword, bit, level, depth);
      }
    }
    return plain_schema(*flat, level, depth);
  }

  /// The rules beside alternatives are rules of each of them.
  Schema alternatives(const Sources& flat, std::size_t index, const char* keyword, uint8_t bit,
                      SchemaLevel level, int depth) {
    const json::array* list = flat[index].find(keyword)->if_array();
    const std::string place = flat[index].place_of(keyword);
    if (list == nullptr || list->empty())
      refuse_schema(where_, place, fmt::format("{} must be a list of schemas, not empty", keyword));
    Sources rest = flat;
    rest[index].taken |= bit;
    std::erase_if(rest, [](const SchemaSource& source) { return !has_meaning(source); });
    json::array any;
    for (std::size_t i = 0; i < list->size(); ++i) {
      Sources branch = rest;
      branch.push_back({.schema = &(*list)[i], .place = fmt::format("{}/{}", place, i)});
      if (const auto schema = schema_of(branch, level, depth + 1)) any.push_back(*schema);
    }
    if (any.empty()) return std::nullopt;
    if (any.size() == 1) return any[0].get_object();
    return json::object{{"anyOf", any}};
  }

  Schema nothing(const Sources& sources) {
    misfit_ = sources.empty() ? "#" : sources.front().place;
    return std::nullopt;
  }

  Schema plain_schema(const Sources& flat, SchemaLevel level, int depth) {
    uint8_t types = kAllTypes, implied = 0;
    bool is_declared = false;
    for (const SchemaSource& source : flat) {
      implied |= implied_types(source);
      if (const auto declared = declared_types(source, where_)) {
        types &= *declared;
        is_declared = true;
      }
    }
    if (const auto values = enum_values(flat, types, where_)) {
      count_values(*values, flat.front().place);
      if (values->empty()) return nothing(flat);
      return json::object{{"enum", json::array(values->begin(), values->end())}};
    }
    if (!is_declared && implied == 0) return json::object();
    if (!is_declared) types = implied;
    if ((types & kFractionType) != 0 && number_rules(flat, where_).is_whole())
      types = static_cast<uint8_t>(types & ~kFractionType);
    json::array any;
    for (const uint8_t type : {kNullType, kBooleanType, kFractionType, kIntegerType, kStringType,
                               kArrayType, kObjectType}) {
      if ((types & type) == 0 || (type == kIntegerType && (types & kFractionType) != 0)) continue;
      if (const auto schema = typed_schema(flat, type, level, depth)) any.push_back(*schema);
    }
    if (any.empty()) return nothing(flat);
    if (any.size() == 1) return any[0].get_object();
    return json::object{{"anyOf", any}};
  }

  void count_values(const std::vector<json::value>& values, const std::string& place) {
    use_.values += static_cast<int>(values.size());
    if (use_.values > limits_.num_values)
      refuse_schema(where_, place, fmt::format("more than {} values of enums", limits_.num_values));
    for (const json::value& value : values) use_.value_bytes += json_text(value).size();
    if (use_.value_bytes > limits_.text_bytes) {
      refuse_schema(where_, place,
                    fmt::format("more than {} bytes in values of enums", limits_.text_bytes));
    }
  }

  Schema typed_schema(const Sources& flat, uint8_t type, SchemaLevel level, int depth) {
    switch (type) {
      case kNullType:
        return json::object{{"type", "null"}};
      case kBooleanType:
        return json::object{{"type", "boolean"}};
      case kFractionType:
      case kIntegerType:
        return number_schema(number_rules(flat, where_), type == kIntegerType);
      case kStringType:
        return string_schema(flat, level);
      case kArrayType:
        return array_schema(flat, depth);
      default:
        return object_schema(flat, level, depth);
    }
  }

  Schema string_schema(const Sources& flat, SchemaLevel level) {
    StringRules rules = string_rules(flat, where_);
    if (rules.max_length && *rules.max_length < rules.min_length) return nothing(flat);
    if (rules.format &&
        std::find(kTextFormats.begin(), kTextFormats.end(), *rules.format) == kTextFormats.end())
      rules.format.reset();  // an annotation
    const int num_rules = static_cast<int>(rules.pattern.has_value()) +
                          static_cast<int>(rules.format.has_value()) +
                          static_cast<int>(rules.has_length());
    if (num_rules > 1) {
      refuse_schema(where_, rules.place,
                    "pattern, format, and minLength or maxLength, are not supported beside one "
                    "another");
    }
    json::object schema{{"type", "string"}};
    const bool is_bare = level == SchemaLevel::kParameters || level == SchemaLevel::kParameter;
    if (rules.pattern) {
      const std::string place = fmt::format("{}, {}", where_, rules.place);
      const TextPattern pattern = read_whole_regex(*rules.pattern, place, limits_);
      if (level == SchemaLevel::kJson) return text_schema(pattern);
      schema["pattern"] = written(pattern, is_bare);
    } else if (rules.format) {
      schema["format"] = *rules.format;
    } else if (rules.has_length() && is_bare) {
      if (rules.min_length > 0) schema["minLength"] = rules.min_length;
      if (rules.max_length) schema["maxLength"] = *rules.max_length;
    } else if (rules.has_length()) {
      // Characters that need no escape: the engine follows counts of one class quickly, and those of
      // alternatives slowly. Its own bound lets control characters through.
      static const CharSet kPlain = CharSet{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}.complement();
      const int64_t most = rules.max_length.value_or(TextPattern::kUnbounded);
      const TextPattern pattern = repeat_pattern(set_pattern(kPlain), rules.min_length, most);
      if (level == SchemaLevel::kJson) return text_schema(pattern);
      schema["pattern"] = written(pattern, false);
    }
    return schema;
  }

  /// A text of JSON: its grammar, or a constant that stands for it.
  json::object text_schema(const TextPattern& pattern) {
    if (use_.text_mark.empty())
      return {{"type", "string"}, {"pattern", json_string_regex(pattern)}};
    use_.texts.push_back(ebnf_text(json_form(pattern), '"'));
    return {{"const", fmt::format("{}{}", use_.text_mark, use_.texts.size() - 1)}};
  }

  static std::string written(const TextPattern& pattern, bool is_bare) {
    return is_bare ? regex_text(pattern) : json_string_regex(pattern);
  }

  Schema array_schema(const Sources& flat, int depth) {
    const ArrayRules rules = array_rules(flat, where_, limits_);
    json::object schema{{"type", "array"}};
    json::array prefix;
    std::optional<int64_t> most = rules.max_items;
    bool is_open = rules.is_open;
    for (const Sources& sources : rules.prefix) {
      if (most && static_cast<int64_t>(prefix.size()) >= *most) break;
      const auto item = member(sources, SchemaLevel::kJson, depth + 1);
      if (!item) {  // none of more items
        most = static_cast<int64_t>(prefix.size());
        break;
      }
      prefix.push_back(*item);
    }
    if (most && *most < rules.min_items) return nothing(flat);
    if (most && static_cast<int64_t>(prefix.size()) >= *most) is_open = false;
    if (is_open) {
      const auto items = member(rules.items, SchemaLevel::kJson, depth + 1);
      if (items)
        schema["items"] = *items;
      else
        is_open = false;
    }
    if (!is_open) {
      if (static_cast<int64_t>(prefix.size()) < rules.min_items) return nothing(flat);
      schema["items"] = false;
    }
    if (!prefix.empty()) schema["prefixItems"] = prefix;
    if (rules.min_items > 0) schema["minItems"] = rules.min_items;
    if (most && is_open) schema["maxItems"] = *most;
    return schema;
  }

  Schema object_schema(const Sources& flat, SchemaLevel level, int depth) {
    const ObjectRules rules = object_rules(flat, where_, limits_);
    const SchemaLevel inner =
        level == SchemaLevel::kParameters ? SchemaLevel::kParameter : SchemaLevel::kJson;
    use_.properties += static_cast<int>(rules.properties.size());
    if (use_.properties > limits_.num_properties)
      refuse_schema(where_, flat.front().place,
                    fmt::format("more than {} properties", limits_.num_properties));
    json::object schema{{"type", "object"}};
    json::object properties;
    json::array required;
    for (const auto& [name, rule] : rules.properties) {
      const auto value = rule.is_forbidden ? std::nullopt : member(rule.sources, inner, depth + 1);
      if (!value && rule.is_required) return nothing(flat);
      if (!value) continue;
      properties[name] = *value;
      if (rule.is_required) required.push_back(json::value(name));
    }
    const bool has_properties = !properties.empty();
    if (has_properties) schema["properties"] = properties;
    if (!required.empty()) schema["required"] = required;
    if (rules.pattern) {
      const std::string place = fmt::format("{}, {}", where_, rules.pattern_place);
      const TextPattern pattern = read_whole_regex(*rules.pattern, place, limits_, true);
      if (const auto value = member(rules.pattern_sources, inner, depth + 1)) {
        const bool is_bare = level == SchemaLevel::kParameters;
        schema["patternProperties"] = json::object{{written(pattern, is_bare), *value}};
      }
    }
    Schema others;
    // Between tags the engine would let others have the names of properties.
    if (rules.is_open && (level != SchemaLevel::kParameters || !has_properties))
      others = member(rules.others, inner, depth + 1);
    if (others && rules.names) {
      const SchemaLevel of_names =
          level == SchemaLevel::kParameters ? SchemaLevel::kParameter : SchemaLevel::kName;
      const auto names = schema_of({*rules.names, any_text()}, of_names, depth + 1);
      if (names)
        schema["propertyNames"] = *names;
      else
        others = std::nullopt;
    }
    if (others)
      schema["additionalProperties"] = *others;
    else
      schema["additionalProperties"] = false;
    if (rules.min_properties > 0) schema["minProperties"] = rules.min_properties;
    if (rules.max_properties) {
      if (*rules.max_properties < rules.min_properties ||
          *rules.max_properties < static_cast<int64_t>(required.size()))
        return nothing(flat);
      schema["maxProperties"] = *rules.max_properties;
    }
    const bool is_closed = !others && !rules.pattern;
    if (is_closed && static_cast<int64_t>(properties.size()) < rules.min_properties)
      return nothing(flat);
    return schema;
  }

  /// Names of members are texts.
  static SchemaSource any_text() {
    static const json::value text = json::object{{"type", "string"}};
    return {.schema = &text, .place = "#"};
  }

  SchemaRoot root_;
  const std::string& where_;
  const GrammarLimits& limits_;
  SchemaUse& use_;
  std::map<std::vector<std::pair<const json::value*, int>>, std::string> names_;
  std::deque<Definition> queue_;
  std::string misfit_ = "#";  // the place of the last schema that nothing fits
};

}  // namespace

std::string text_mark_for(std::string_view source) {
  std::string mark = "slime.text.";
  while (source.find(mark) != std::string_view::npos) mark += "x.";
  return mark;
}

std::string with_texts(std::string ebnf, const SchemaUse& use) {
  // In the engine's EBNF a constant's quotes are escaped ones within those of the grammar.
  constexpr std::string_view kQuote = "\\\"";
  const std::string begin = std::string(kQuote) + use.text_mark;
  std::string out;
  std::size_t from = 0;
  for (std::size_t at; (at = ebnf.find(begin, from)) != std::string::npos;) {
    const std::size_t number = at + begin.size();
    const std::size_t end = ebnf.find(kQuote, number);
    check(end != std::string::npos, "a constant of the engine's EBNF ends with a quote");
    const auto index = static_cast<std::size_t>(std::stoul(ebnf.substr(number, end - number)));
    out += ebnf.substr(from, at + kQuote.size() - from) + "\" (" + use.texts.at(index) + ") \"";
    from = end;
  }
  out += ebnf.substr(from);
  check(out.find(use.text_mark) == std::string::npos, "each text has its grammar");
  return out;
}

json::value read_schema(const json::value& schema, SchemaForm form, const std::string& where,
                        const GrammarLimits& limits, SchemaUse& use) {
  return SchemaReader(schema, where, limits, use).read(form);
}

}  // namespace slime::text
