#pragma once

/// Grammars of calls as structural tags: calls that must come, calls that may come and are bound once
/// they begin, and calls or an answer of a given form.
///
///   {"type": "structural_tag", "format": {"type": "tags_with_separator", "at_least_one": true, "tags":
///    [{"type": "tag", "begin": "<tool_call>\n{\"name\": \"f\", \"arguments\": ", "content":
///      {"type": "json_schema", "json_schema": {...}}, "end": "}\n</tool_call>"}], ...}}

#include <optional>
#include <string>

#include "core/json.h"
#include "text/messages/call_syntax.h"

namespace slime::text {

struct CallGrammar {
  const CallSyntax* syntax = nullptr;  // whose `begin` is not empty
  /// {"type": "function", "function": {"name", "parameters", "strict"}}; at least one.
  const json::array* tools = nullptr;
  bool parallel = true;
  /// Arguments are bound for tools with `strict` alone.
  bool binds_strict_alone = false;
  bool is_harmony = false;  // thoughts are a message, and so is the answer
};

/// At least one call, and nothing else.
json::object forced_calls(const CallGrammar& calls);

/// Calls, or an answer of `format`: a format of structural tags, {"type": "json_schema", ...}.
json::object calls_or(const CallGrammar& calls, const json::object& format);

/// Any text; calls in it are calls of the tools.
json::object bound_calls(const CallGrammar& calls);

/// An answer of `format` alone, in the frame that harmony puts around it.
json::object harmony_answer(const json::object& format);

}  // namespace slime::text
