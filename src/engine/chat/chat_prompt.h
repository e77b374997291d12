#pragma once

/// Chat request to requests of the engine: the prompt as the template writes it, and how the outputs
/// are to be read.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat/chat_request.h"
#include "engine/chat/chat_session.h"
#include "engine/chat/tools.h"
#include "engine/http/served_model.h"
#include "text/messages/message_parser.h"

namespace slime::engine {

/// Reading of the outputs of one request. Immutable; shared by its choices.
struct ChatReading {
  const ServedModel* model = nullptr;
  const text::MessageFormat* format = nullptr;
  text::ToolSchemas schemas;  // of the tools that the model sees
  ChatTools tools;
  bool reads_calls = false;
  bool reads_reasoning = false;
  bool parallel_calls = true;
  bool streams_reasoning = true;
  text::PromptTail tail = text::PromptTail::kMessage;
  int num_earlier_calls = 0;  // in the history
};

struct ChatCall {
  std::vector<GenerateRequest> requests;  // one per choice, each with a rid
  std::shared_ptr<const ChatReading> reading;
  std::vector<TokenId> prompt_ids;
  std::shared_ptr<ChatSession> session;  // that the request belongs to, or null
};

/// Throws ConfigError: every problem, each naming its field; context_length_exceeded
/// (engine/http/api_error.h) where the prompt leaves no room in the context. `model` outlives the answers;
/// of a request of a session it is the session's.
ChatCall prepare_chat(ChatRequest request, const ServedModel& model,
                      std::shared_ptr<ChatSession> session = nullptr);

/// The prompt alone.
std::vector<TokenId> prompt_tokens(ChatRequest request, const ServedModel& model,
                                   ChatSession* session = nullptr);
/// Its length.
int64_t count_prompt_tokens(ChatRequest request, const ServedModel& model,
                            ChatSession* session = nullptr);

}  // namespace slime::engine
