#pragma once

/// Messages as clients send them, in the form that the model's template takes.
///
///   {"role": "assistant", "content": null, "tool_calls": [{.., "function": {"name": "f",
///    "arguments": "{\"a\": 1}"}}], "refusal": null, "audio": null}
///   -> {"role": "assistant", "content": "", "tool_calls": [{.., "arguments": {"a": 1}}]}
///
/// A server's own answer may be sent back as it is. What a template cannot take is given another
/// form (engine/chat/template_traits.h); nothing is left out.

#include <cstddef>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/chat/template_traits.h"

namespace slime::engine {

inline constexpr std::size_t kMostMessages = 16384;
inline constexpr std::size_t kMostCallsInMessage = 1024;

/// Appends to `problems` what is wrong, each beginning with the field: "messages[2].content ...".
/// The last message keeps its place where it is continued.
json::array normalised_messages(const json::array& messages, const TemplateTraits& traits,
                                std::vector<std::string>& problems);

/// Calls in the messages, which ids of later calls may count on from.
int num_calls_in(const json::array& messages);

}  // namespace slime::engine
