#pragma once

/// Tools of the Responses protocol that have a type instead of a schema and that clients run
/// themselves: the model sees them as functions, and their calls are items of types of their own.
///
///   {"type": "local_shell"}  ->  function local_shell(command, ...)
///   a call of it             ->  {"type": "local_shell_call", "action": {"command": [...], ...}}

#include <string_view>

#include "core/json.h"

namespace slime::engine {

struct ClientTool {
  std::string_view type;         // and name of the function
  std::string_view call_type;    // of items that call it
  std::string_view output_type;  // of items with its results
  std::string_view member;       // of call items, which holds the arguments
  std::string_view description;
  std::string_view parameters;  // JSON schema
};

/// The tool of that type, or whose calls or outputs are items of that type; null: none.
const ClientTool* find_client_tool(std::string_view type);
const ClientTool* find_client_tool_of_call(std::string_view item_type);
const ClientTool* find_client_tool_of_output(std::string_view item_type);

/// {"type": "function", "function": {...}}
json::object to_chat_tool(const ClientTool& tool);

/// The member of a call item, of the arguments that the model wrote.
json::object to_action(const ClientTool& tool, json::object arguments);

}  // namespace slime::engine
