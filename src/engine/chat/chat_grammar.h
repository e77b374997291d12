#pragma once

/// Grammar of a chat's output: forced calls, strict tools, and the form of the answer, in the marks of the
/// model's parsers. Thoughts in front are free.
///
/// A client's own json_schema, regex, ebnf or structural_tag describes the whole output behind thoughts that
/// the prompt opened: nothing is added to it. `response_format` and its like describe the answer, so a model
/// may think first, and may call tools where it has some.

#include <string_view>

#include "engine/chat/chat_request.h"
#include "engine/chat/tools.h"
#include "text/messages/message_parser.h"

namespace slime::engine {

/// The output's form, as far as it is known before it is sampled.
struct OutputFrame {
  const text::MessageFormat& format;
  const ChatTools& tools;
  text::PromptTail tail = text::PromptTail::kMessage;
  std::string_view prompt;  // its end
};

/// Sets the grammar of `request.engine` and where it begins. Throws ConfigError that names the field.
void set_grammar(ChatRequest& request, const OutputFrame& frame);

}  // namespace slime::engine
