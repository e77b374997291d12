#pragma once

/// Reader of structural tags: text that is free in places and follows grammars in others, as JSON.
///
///   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<call>"], "tags":
///    [{"type": "tag", "begin": "<call>", "content": {"type": "json_schema", "json_schema": {...}},
///      "end": "</call>"}]}}
///
/// Formats: const_string, json_schema, regex, grammar, any_text, sequence, or, optional, star, plus, repeat,
/// tag, triggered_tags, tags_with_separator, dispatch, and those of token ids: token, any_tokens,
/// exclude_token, token_triggered_tags, token_dispatch. The older {"structures": [{"begin", "schema",
/// "end"}], "triggers": [...]} is read too.

#include <string>

#include "core/json.h"
#include "text/grammar/grammar_limits.h"
#include "text/grammar/schema_reader.h"

namespace slime::text {

/// The tag as the engine reads it, its schemas, expressions and grammars checked and written anew. Throws
/// ConfigError that begins with `where` and names the format's JSON pointer. `use` is of all its schemas.
json::value read_structural_tag(const json::value& tag, int max_whitespace,
                                const std::string& where, const GrammarLimits& limits,
                                SchemaUse& use);

}  // namespace slime::text
