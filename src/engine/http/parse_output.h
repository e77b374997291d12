#pragma once

/// Bodies of /parse_function_call and /separate_reasoning: a model's output, given as text, taken
/// apart. Clients that generate by /generate use them.

#include "core/json.h"
#include "engine/http/served_model.h"

namespace slime::engine {

/// {"text", "tools", "tool_call_parser"} -> {"normal_text", "calls": [{"tool_index", "name",
/// "parameters"}]}; a tool's index is its place in the list, or -1. Without a parser's name the
/// model's is used. Throws ConfigError.
json::object parse_function_call(const json::object& body, const ServedModel& model);

/// {"text", "reasoning_parser"} -> {"reasoning_text", "text"}. The text may begin inside of the
/// thoughts where it has their closing mark alone. Throws ConfigError.
json::object separate_reasoning(const json::object& body, const ServedModel& model);

}  // namespace slime::engine
