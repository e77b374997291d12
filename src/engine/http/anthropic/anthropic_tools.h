#pragma once

/// Tools of Anthropic's protocol as chat tools.
///
///   {"name": "f", "description": "...", "input_schema": {...}}
///   -> {"type": "function", "function": {"name": "f", "description": "...", "parameters": {...}}}
///
/// Tools with a type of their own (web_search_20250305, bash_20250124, ...) have no schema and are
/// left out with a warning.

#include <string>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"
#include "engine/chat/chat_request.h"

namespace slime::engine {

struct AnthropicTools {
  json::array chat_tools;
  ToolChoice choice;
  bool parallel = true;
};

/// `tools` and `tool_choice` of the body; problems go to the reader.
AnthropicTools read_anthropic_tools(const FieldReader& body, std::vector<std::string>& warnings);

}  // namespace slime::engine
