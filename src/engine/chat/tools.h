#pragma once

/// Tools of a chat request: checked, and in the form that templates and parsers take.

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/chat/chat_request.h"

namespace slime::engine {

/// A call that has more tools, or longer names, is refused.
inline constexpr std::size_t kMostTools = 1024;
inline constexpr std::size_t kMostToolNameBytes = 1024;

struct ChatTools {
  /// {"type": "function", "function": {...}}, as the client wrote them; a custom tool is a function
  /// with one text, `input`. Those that the choice leaves out are not among them.
  json::array shown;
  std::vector<std::string> custom;  // names of custom tools

  bool is_custom(std::string_view name) const;
};

/// The request's tools as its choice leaves them. Appends to `problems` what is wrong, each
/// beginning with the field: "tools[2].function.name ...".
ChatTools checked_tools(const ChatRequest& request, std::vector<std::string>& problems);

/// Chat completions' `tool_choice`: "auto", "none", "required", {"type": "function", "function":
/// {"name"}}, {"type": "custom", "custom": {"name"}}, {"type": "allowed_tools", "allowed_tools":
/// {"mode", "tools"}}.
ToolChoice read_tool_choice(const json::value& choice, std::vector<std::string>& problems);

}  // namespace slime::engine
