#pragma once

/// One answer of a protocol that names its events, Responses or Anthropic's messages: updates of the
/// engine to the events of a stream or to a whole body. Needs no HTTP.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/chat/chat_choice.h"
#include "engine/http/api_error.h"
#include "engine/http/server_event.h"

namespace slime::engine {

class ProtocolAnswer {
 public:
  virtual ~ProtocolAnswer() = default;

  /// The first update also begins the stream, the last one ends it.
  virtual std::vector<ServerEvent> add(const GenerateUpdate& update) = 0;
  /// Begins the stream, where no update came yet.
  virtual std::vector<ServerEvent> begin() = 0;
  /// Ends a stream that has begun.
  virtual std::vector<ServerEvent> fail(const ApiError& error) = 0;
  /// For clients of a stream that is silent; empty: a comment will do.
  virtual std::vector<ServerEvent> keep_alive() const { return {}; }

  /// After the last update.
  virtual json::object whole() const = 0;

  virtual const ChatChoice& choice() const = 0;
};

}  // namespace slime::engine
