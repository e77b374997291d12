#pragma once

/// Request of /v1/chat/completions as a chat request.

#include <memory>
#include <string>
#include <vector>

#include "engine/chat/chat_prompt.h"
#include "engine/chat/chat_request.h"
#include "engine/http/openai_fields.h"

namespace slime::engine {

struct ChatCompletionsCall {
  ChatCall chat;
  OpenAiForm form;
  std::vector<std::string> ignored_fields;
};

/// Throws ConfigError with every problem, each naming its field.
ChatCompletionsCall parse_chat_completions(const json::object& body, const ServedModel& model,
                                           std::shared_ptr<ChatSession> session = nullptr);

}  // namespace slime::engine
