#pragma once

/// Reader of JSON schemas: one that says the same, in keywords that the engine binds exactly.
///
/// Parts of allOf and neighbours of $ref are merged, alternatives carry the rules that stand beside them,
/// types are written where keywords imply them, and patterns of texts are those of their form in JSON.
/// What cannot be said so is refused, by its keyword and its JSON pointer. Chosen among the texts of a
/// schema (docs/grammars.md): objects with properties have no others unless additionalProperties says so,
/// their order is the schema's, a pattern binds the whole text.

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/json.h"
#include "text/grammar/grammar_limits.h"

namespace slime::text {

/// How values are written.
enum class SchemaForm : uint8_t {
  kJson,
  kParameters,  // an object's members between tags, texts bare: <parameter=city>Rome</parameter>
};

/// What all schemas of one grammar have used of its limits.
struct SchemaUse {
  int schemas = 0;
  int properties = 0;
  int values = 0;
  std::size_t value_bytes = 0;
};

/// Throws ConfigError that begins with `where`.
json::value read_schema(const json::value& schema, SchemaForm form, const std::string& where,
                        const GrammarLimits& limits, SchemaUse& use);

}  // namespace slime::text
