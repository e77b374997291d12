#include "text/grammar/schema_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/field_reader.h"
#include "text/grammar/schema_values.h"
#include "text/tokenizer/regex.h"

namespace slime::text {
namespace {

bool is_false(const json::value& schema) { return schema.is_bool() && !schema.get_bool(); }

const json::object* object_at(const SchemaSource& source, std::string_view keyword,
                              const std::string& where) {
  const json::value* given = source.find(keyword);
  if (given == nullptr) return nullptr;
  if (const auto* object = given->if_object()) return object;
  refuse_schema(where, source.place_of(keyword),
                fmt::format("{} must be an object, not {}", keyword, shown(*given)));
}

SchemaSource inner(const SchemaSource& source, std::string_view keyword, std::string_view name,
                   const json::value& schema) {
  const SchemaSource holder{.schema = source.schema, .place = source.place_of(keyword)};
  return {.schema = &schema, .place = holder.place_of(name)};
}

struct ArrayPart {
  std::vector<SchemaSource> prefix;
  std::optional<SchemaSource> items;
};

/// The first items, and the others: `items` with a list, and `additionalItems`, were their older names.
ArrayPart array_part(const SchemaSource& source, const std::string& where) {
  ArrayPart part;
  const auto add_prefix = [&](std::string_view keyword, const json::value& list) {
    if (!list.is_array())
      refuse_schema(where, source.place_of(keyword),
                    fmt::format("{} must be a list of schemas", keyword));
    const auto& schemas = list.get_array();
    for (std::size_t i = 0; i < schemas.size(); ++i)
      part.prefix.push_back(inner(source, keyword, std::to_string(i), schemas[i]));
  };
  const json::value* items = source.find("items");
  const bool is_old = items != nullptr && items->is_array();
  if (const json::value* prefix = source.find("prefixItems")) {
    if (is_old)
      refuse_schema(where, source.place_of("items"), "items is a list, beside prefixItems");
    add_prefix("prefixItems", *prefix);
  }
  if (is_old) add_prefix("items", *items);
  const std::string_view others = is_old ? "additionalItems" : "items";
  if (source.find(others) != nullptr)
    part.items = source.member(others);
  else if (source.find("unevaluatedItems") != nullptr)
    part.items = source.member("unevaluatedItems");
  return part;
}

void check_unique(const std::vector<SchemaSource>& sources, const ArrayRules& rules,
                  const std::string& where) {
  if (rules.max_items && *rules.max_items <= 1) return;
  for (const SchemaSource& source : sources) {
    const json::value* unique = source.find("uniqueItems");
    if (unique == nullptr || is_false(*unique)) continue;
    refuse_schema(where, source.place_of("uniqueItems"),
                  "uniqueItems is not supported: it cannot be bound token by token");
  }
}

/// As the keyword is meant: somewhere in the name.
bool matches(const std::string& pattern, std::string_view name, const std::string& where,
             const std::string& place) {
  const auto compiled = Regex::compile(pattern);
  if (!compiled) refuse_schema(where, place, compiled.error().message);
  std::vector<Range> found;
  compiled->find_all(name, found);
  return !found.empty();
}

class ObjectReader final {
 public:
  ObjectReader(const std::vector<SchemaSource>& sources, const std::string& where,
               const GrammarLimits& limits)
      : where_(where) {
    for (const SchemaSource& source : sources) {
      if ((implied_types(source) & kObjectType) != 0) sources_.push_back(source);
    }
    rules_.min_properties = count_rule(sources, "minProperties", true, where, limits).value_or(0);
    rules_.max_properties = count_rule(sources, "maxProperties", false, where, limits);
  }

  ObjectRules read() {
    for (const SchemaSource& source : sources_) read_properties(source);
    for (const SchemaSource& source : sources_) read_patterns(source);
    for (const SchemaSource& source : sources_) read_others(source);
    for (const SchemaSource& source : sources_) read_required(source);
    for (const SchemaSource& source : sources_) read_names(source);
    finish();
    return std::move(rules_);
  }

 private:
  PropertyRule& property(const std::string& name) {
    const auto [at, is_new] = index_.try_emplace(name, rules_.properties.size());
    if (is_new) rules_.properties.emplace_back(name, PropertyRule{});
    return rules_.properties[at->second].second;
  }

  void read_properties(const SchemaSource& source) {
    const auto* properties = object_at(source, "properties", where_);
    if (properties == nullptr) return;
    for (const auto& member : *properties) {
      property(std::string(member.key()))
          .sources.push_back(inner(source, "properties", member.key(), member.value()));
    }
  }

  void read_patterns(const SchemaSource& source) {
    const auto* patterns = object_at(source, "patternProperties", where_);
    if (patterns == nullptr || patterns->empty()) return;
    const std::string place = source.place_of("patternProperties");
    if (patterns->size() > 1 || rules_.pattern || sources_.size() > 1)
      refuse_schema(where_, place,
                    "patternProperties is not supported with several patterns, nor merged");
    const auto& member = *patterns->begin();
    rules_.pattern = std::string(member.key());
    rules_.pattern_place = place;
    rules_.pattern_sources = {inner(source, "patternProperties", member.key(), member.value())};
    for (auto& [name, rule] : rules_.properties) {
      if (!matches(*rules_.pattern, name, where_, place)) continue;
      refuse_schema(
          where_, place,
          fmt::format("patternProperties that match a property, \"{}\", are not supported", name));
    }
  }

  /// What a source says of members that it does not name holds for those that other sources name.
  void read_others(const SchemaSource& source) {
    const bool has_additional = source.find("additionalProperties") != nullptr;
    const std::string_view keyword =
        has_additional ? "additionalProperties" : "unevaluatedProperties";
    const json::value* others = source.find(keyword);
    if (others == nullptr) return;
    has_rule_ = true;
    if (rules_.pattern && !is_false(*others)) {
      refuse_schema(
          where_, source.place_of(keyword),
          fmt::format("{} beside patternProperties is not supported but as false", keyword));
    }
    const auto* own = object_at(source, "properties", where_);
    const bool is_of_all = !has_additional && &source == &sources_.front();
    for (auto& [name, rule] : rules_.properties) {
      if (is_of_all || (own != nullptr && own->contains(name))) continue;
      if (is_false(*others))
        rule.is_forbidden = true;
      else
        rule.sources.push_back(source.member(keyword));
    }
    if (is_false(*others))
      is_closed_ = true;
    else
      rules_.others.push_back(source.member(keyword));
  }

  void read_required(const SchemaSource& source) {
    const json::value* required = source.find("required");
    if (required == nullptr) return;
    if (!required->is_array())
      refuse_schema(where_, source.place_of("required"),
                    fmt::format("required must be a list of names, not {}", shown(*required)));
    for (const json::value& name : required->get_array()) {
      if (!name.is_string())
        refuse_schema(where_, source.place_of("required"),
                      fmt::format("required must be a list of names, not of {}", shown(name)));
      require(std::string(name.get_string()));
    }
  }

  void require(const std::string& name) {
    const bool is_new = !index_.contains(name);
    PropertyRule& rule = property(name);
    rule.is_required = true;
    if (!is_new) return;
    if (rules_.pattern && matches(*rules_.pattern, name, where_, rules_.pattern_place)) {
      refuse_schema(where_, rules_.pattern_place,
                    fmt::format("patternProperties that match a required member, \"{}\", are not "
                                "supported",
                                name));
    }
    rule.sources = rules_.others;
    rule.is_forbidden = is_closed_;
  }

  void read_names(const SchemaSource& source) {
    if (source.find("propertyNames") == nullptr) return;
    if (rules_.names || rules_.pattern || !rules_.properties.empty())
      refuse_schema(where_, source.place_of("propertyNames"),
                    "propertyNames is supported where no other keyword names members");
    rules_.names = source.member("propertyNames");
  }

  void finish() {
    const bool names_members = rules_.pattern.has_value() || !rules_.properties.empty();
    rules_.is_open = !is_closed_ && (has_rule_ || !names_members);
  }

  const std::string& where_;
  std::vector<SchemaSource> sources_;
  ObjectRules rules_;
  std::map<std::string, std::size_t> index_;  // of properties
  bool has_rule_ = false;                     // of other members
  bool is_closed_ = false;
};

}  // namespace

ArrayRules array_rules(const std::vector<SchemaSource>& sources, const std::string& where,
                       const GrammarLimits& limits) {
  ArrayRules rules;
  std::vector<ArrayPart> parts;
  std::size_t num_prefix = 0;
  bool has_items = false;
  for (const SchemaSource& source : sources) {
    parts.push_back(array_part(source, where));
    num_prefix = std::max(num_prefix, parts.back().prefix.size());
    has_items |= parts.back().items.has_value();
  }
  rules.prefix.resize(num_prefix);
  for (const ArrayPart& part : parts) {
    for (std::size_t i = 0; i < num_prefix; ++i) {
      if (i < part.prefix.size())
        rules.prefix[i].push_back(part.prefix[i]);
      else if (part.items)
        rules.prefix[i].push_back(*part.items);
    }
    if (part.items) rules.items.push_back(*part.items);
  }
  rules.min_items = count_rule(sources, "minItems", true, where, limits).value_or(0);
  rules.max_items = count_rule(sources, "maxItems", false, where, limits);
  check_unique(sources, rules, where);
  // A list of first items is the whole list unless the schema says more, or wants more.
  rules.is_open =
      has_items || num_prefix == 0 || rules.min_items > static_cast<int64_t>(num_prefix);
  return rules;
}

ObjectRules object_rules(const std::vector<SchemaSource>& sources, const std::string& where,
                         const GrammarLimits& limits) {
  return ObjectReader(sources, where, limits).read();
}

}  // namespace slime::text
