#pragma once

/// Messages of Anthropic's protocol as chat messages.
///
///   user       [tool_result, text]      -> {"role": "tool", ...}, {"role": "user", ...}
///   assistant  [thinking, text, tool_use] -> {"role": "assistant", "reasoning_content", "content",
///                                            "tool_calls"}
///
/// Messages of one role that follow one another are one message. A last message of the assistant is
/// the beginning of the answer.

#include <cstddef>
#include <string>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"

namespace slime::engine {

inline constexpr std::size_t kMostAnthropicMessages = 65536;

struct AnthropicConversation {
  json::array messages;
  bool continues_final_message = false;
};

/// `system` and `messages` of the body. Problems go to the reader.
AnthropicConversation read_anthropic_messages(const FieldReader& body);

}  // namespace slime::engine
