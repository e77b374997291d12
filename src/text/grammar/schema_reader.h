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
#include <string_view>
#include <vector>

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
  /// Not empty: texts with a pattern or a length are written as constants, this mark and a number, and the
  /// grammar that belongs between their quotes is left in `texts` under that number. The engine follows a
  /// counted class of characters quickly where the mark of its end stands in the same rule, and its own
  /// form of patterns has that elsewhere.
  std::string text_mark = {};
  std::vector<std::string> texts = {};
};

/// A mark that `source` does not hold.
std::string text_mark_for(std::string_view source);

/// An EBNF that the engine made of such a schema, with the grammars of its texts in their places.
std::string with_texts(std::string ebnf, const SchemaUse& use);

/// Throws ConfigError that begins with `where`.
json::value read_schema(const json::value& schema, SchemaForm form, const std::string& where,
                        const GrammarLimits& limits, SchemaUse& use);

}  // namespace slime::text
