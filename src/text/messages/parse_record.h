#pragma once

/// A line of `slime parse`: a model's output to its message.
///
///   {"text": "<tool_call>\n{...}\n</tool_call>", "tools": [...], "tool_call_parser": "qwen25"}
///   {"content": null, "reasoning_content": null, "tool_calls": [{"id", "type", "function":
///    {"name", "arguments"}}], "finish_reason": "tool_calls", "tool_call_errors": 0}

#include <cstdint>
#include <string>

#include "core/json.h"

namespace slime::text {

struct ParseOptions {
  /// Tries every split of the text in two, single characters and 50 random splits.
  bool tries_splits = false;
  uint64_t seed = 0;  // of ids and random splits
};

/// Reads `text`, `tools`, `tool_choice`, `tool_call_parser`, `reasoning_parser`, `thinking_open` (or
/// the `prompt` that says it) and `finish`. With splits the answer has "splits", how many were
/// tried, and "differs": of the first one whose message is another, its pieces and that message, or
/// null. Throws ConfigError that begins with `where`.
json::object parse_record(const json::object& line, const std::string& where,
                          const ParseOptions& options);

}  // namespace slime::text
