#pragma once

/// Arrays and objects of a JSON schema: the rules of all its parts together.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/grammar_limits.h"
#include "text/grammar/schema_source.h"

namespace slime::text {

struct ArrayRules {
  std::vector<std::vector<SchemaSource>> prefix;  // of the first items, one after another
  std::vector<SchemaSource> items;                // of each item behind them
  bool is_open = true;                            // there may be items behind them
  int64_t min_items = 0;
  std::optional<int64_t> max_items;
};

struct PropertyRule {
  std::vector<SchemaSource> sources;
  bool is_required = false;
  bool is_forbidden = false;
};

struct ObjectRules {
  std::vector<std::pair<std::string, PropertyRule>> properties;  // in the schema's order
  std::optional<std::string> pattern;                            // of names of other members
  std::string pattern_place = {};
  std::vector<SchemaSource> pattern_sources = {};
  std::optional<SchemaSource> names = {};
  std::vector<SchemaSource> others = {};  // of each other member
  bool is_open = false;                   // there may be others
  int64_t min_properties = 0;
  std::optional<int64_t> max_properties = {};
};

/// Throw ConfigError where rules are malformed, or cannot be bound together.
ArrayRules array_rules(const std::vector<SchemaSource>& sources, const std::string& where,
                       const GrammarLimits& limits);
ObjectRules object_rules(const std::vector<SchemaSource>& sources, const std::string& where,
                         const GrammarLimits& limits);

}  // namespace slime::text
