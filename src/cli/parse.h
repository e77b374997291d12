#pragma once

/// `slime parse`: outputs of models to messages with thoughts and tool calls, on JSON lines.

#include <span>
#include <string>

namespace slime::cli {

/// {"text", "tools", "tool_call_parser", "reasoning_parser", ...} -> {"content", "tool_calls", ...}.
/// With --splits 1 when some split of a text gives another message.
int parse(std::span<const std::string> arguments);

}  // namespace slime::cli
