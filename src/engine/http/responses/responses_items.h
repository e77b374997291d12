#pragma once

/// Input items of a Responses request as chat messages.
///
///   reasoning, message of the assistant, function_call, custom_tool_call, ...
///     up to the next item of another kind: one message of the assistant
///   function_call_output, custom_tool_call_output, ...: messages of the role tool
///   message of the user, system or developer: that message

#include <string>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"

namespace slime::engine {

inline constexpr std::size_t kMostItems = 65536;

/// `instructions` and `input` of the body. Problems go to the reader; what was left out is named in
/// `warnings`.
json::array messages_of_input(const FieldReader& body, std::vector<std::string>& warnings);

}  // namespace slime::engine
