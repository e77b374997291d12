#pragma once

/// Grammar that a text must follow: its kind and source.
///
///   {GrammarKind::kJsonSchema, R"({"type": "object", "properties": {"a": {"type": "integer"}}})"}
///   {GrammarKind::kRegex, "[0-9]{4}-[0-9]{2}"}

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slime::text {

enum class GrammarKind : uint8_t {
  kJsonSchema,     // source: a JSON schema
  kJsonObject,     // any JSON object; no source
  kRegex,          // of the whole text
  kEbnf,           // rules `name ::= ...`, the first one `root`
  kStructuralTag,  // JSON: free text, and tags whose content follows grammars
};

struct GrammarSpec {
  /// White space that a model may put between two parts of JSON. Without a bound small models learn to
  /// write it for ever.
  static constexpr int kMaxWhitespace = 16;

  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string source = {};
  /// Characters at most, of JSON schemas and objects, in structural tags too. 0: one form, as Python's
  /// json.dumps writes it, {"a": 1, "b": [2, 3]}; in structural tags that is one character at most.
  int max_whitespace = kMaxWhitespace;

  bool operator==(const GrammarSpec&) const = default;
};

/// "json_schema", "json_object", "regex", "ebnf", "structural_tag".
std::string_view grammar_kind_name(GrammarKind kind);
std::optional<GrammarKind> find_grammar_kind(std::string_view name);

}  // namespace slime::text
