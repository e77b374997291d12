#pragma once

/// Request of /v1/messages and /v1/messages/count_tokens as a chat request.

#include <memory>
#include <string>
#include <vector>

#include "engine/chat/chat_prompt.h"
#include "engine/chat/chat_request.h"
#include "engine/http/openai_fields.h"

namespace slime::engine {

struct AnthropicRequest {
  ChatRequest chat;
  OpenAiForm form;
  std::vector<std::string> warnings;
  std::vector<std::string> ignored_fields;
};

/// Throws ConfigError with every problem, each naming its field. `counts`: of count_tokens, which has
/// no max_tokens.
AnthropicRequest read_anthropic_request(const json::object& body, const ServedModel& model,
                                        bool counts);

struct AnthropicCall {
  AnthropicRequest request;  // its chat request was moved from
  std::int64_t max_tokens = 0;
  ChatCall chat;
};

AnthropicCall parse_anthropic_call(const json::object& body, const ServedModel& model,
                                   std::shared_ptr<ChatSession> session = nullptr);

}  // namespace slime::engine
