#pragma once

/// Numbers and strings of a JSON schema: the bounds of all its parts together, and the values of its enum
/// that keep them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "text/grammar/grammar_limits.h"
#include "text/grammar/schema_source.h"

namespace slime::text {

struct NumberBound {
  double value = 0;
  bool is_exclusive = false;
  json::value written = {};  // as the schema has it
};

struct NumberRules {
  std::optional<NumberBound> low, high;
  std::optional<int64_t> multiple_of;
  /// Multiples of a whole number are whole.
  bool is_whole() const { return multiple_of.has_value(); }
};

struct StringRules {
  int64_t min_length = 0;
  std::optional<int64_t> max_length;
  std::optional<std::string> pattern, format;
  std::string place = "#";  // of the last of them

  bool has_length() const { return min_length > 0 || max_length.has_value(); }
};

/// Throw ConfigError where rules are malformed, or cannot be bound together.
NumberRules number_rules(const std::vector<SchemaSource>& sources, const std::string& where);
StringRules string_rules(const std::vector<SchemaSource>& sources, const std::string& where);

/// The schema of whole numbers, or of numbers, that keep the rules; nothing: there is none.
std::optional<json::object> number_schema(const NumberRules& rules, bool is_whole);

/// A count such as maxItems of all sources: the largest of minimums, the smallest of maximums. One too
/// large to matter is no bound.
std::optional<int64_t> count_rule(const std::vector<SchemaSource>& sources,
                                  std::string_view keyword, bool is_minimum,
                                  const std::string& where, const GrammarLimits& limits);

/// Values of `enum` and `const` that are in all of them and keep the other rules; nothing: the schema has
/// neither.
std::optional<std::vector<json::value>> enum_values(const std::vector<SchemaSource>& sources,
                                                    uint8_t types, const std::string& where);

}  // namespace slime::text
