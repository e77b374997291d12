#pragma once

/// Interface of a kept conversation to one chat request: prompts that go on from sampled tokens, and the
/// record of what is sampled. engine/sessions implements it; requests without a session have none.
///
///   begin -> continued -> prepared -> (the engine samples) -> record -> (the answer is sent) -> forget,
///   where the client did not read it

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/sample.h"

namespace slime::engine {

class ChatChoice;
struct ChatCall;
struct ChatRequest;
struct ServedModel;

struct ChatPrompt {
  std::vector<TokenId> ids;
  std::string text;  // or its end
};

class ChatSession {
 public:
  virtual ~ChatSession() = default;

  /// The model with the session's own defaults and limits. Lives as long as the object.
  virtual const ServedModel& model() const = 0;

  /// Before the prompt is made: what the session decides of a request. Throws ApiError.
  virtual void begin(ChatRequest& request) = 0;
  /// The prompt behind a turn that was sampled here; nothing: the template writes the whole of it.
  /// `options`: the template's, tools among them. The messages are well-formed.
  virtual std::optional<ChatPrompt> continued(const ChatRequest& request,
                                              const json::object& options) = 0;
  /// Before the engine is asked. Throws ApiError when the session has no turn left.
  virtual void prepared(ChatCall& call) = 0;
  /// The prompt leaves no room: an agent that ends here was cut off.
  virtual void refused_for_length() = 0;

  /// Before the end of the answer is sent: the client may ask again at once. One turn per choice.
  virtual void record(std::span<const ChatChoice* const> choices) = 0;
  /// The client is gone and has not read the answer: its turns are none, unless something goes on from
  /// them.
  virtual void forget() = 0;
  /// Tokens that were sampled for an answer which nobody reads, and which is no turn.
  virtual void lose(int64_t num_tokens) = 0;
};

}  // namespace slime::engine
