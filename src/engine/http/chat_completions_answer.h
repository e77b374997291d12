#pragma once

/// Answer of /v1/chat/completions: the parts of a message as OpenAI's JSON.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat/chat_choice.h"
#include "engine/chat/custom_input.h"
#include "engine/http/chat_completions_request.h"
#include "engine/http/openai_answer.h"

namespace slime::engine {

/// One choice: {"index", "message" or "delta", "finish_reason", ...}.
class ChatCompletionsChoice final {
 public:
  /// `form` outlives the object.
  ChatCompletionsChoice(const ChatCall& call, std::size_t index, const OpenAiForm& form);

  void add(const GenerateUpdate& update);
  const ChatChoice& choice() const { return choice_; }
  ChoiceFacts facts() const;

  json::object whole(const VersionNamer& namer) const;
  json::object first_chunk() const;
  /// One for each part of the message that is new; the last one has no part, but how it ended.
  std::vector<json::object> next_chunks();

 private:
  json::object message() const;
  json::object call_of(const text::ToolCall& call) const;
  bool add_delta(const text::MessageEvent& event, json::object& delta);
  json::object chunk_of(json::object delta) const;
  void add_tokens(json::object& chunk);
  json::value logprobs(std::size_t first) const;

  const OpenAiForm& form_;
  std::shared_ptr<const ChatReading> reading_;
  std::size_t index_;
  ChatChoice choice_;
  std::vector<TokenId> stop_token_ids_;
  std::vector<text::MessageEvent> new_events_;  // of a stream
  std::map<int, CustomInput> custom_inputs_;    // of a stream, by call
  std::size_t num_sent_tokens_ = 0;
  bool has_ended_ = false;  // the chunk with finish_reason was taken
};

/// `call` outlives the answer; its requests may be gone.
std::unique_ptr<OpenAiAnswer> make_chat_answer(const ChatCompletionsCall& call, VersionNamer namer);

}  // namespace slime::engine
