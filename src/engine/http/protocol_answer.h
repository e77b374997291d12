#pragma once

/// One answer of a protocol: updates of the engine to a whole body, or to the events of a stream. Needs no
/// HTTP.

#include <cstddef>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/chat/chat_choice.h"
#include "engine/http/api_error.h"
#include "engine/http/server_event.h"

namespace slime::engine {

class ProtocolAnswer {
 public:
  virtual ~ProtocolAnswer() = default;

  /// Of the call's request of this index.
  virtual void add(std::size_t index, const GenerateUpdate& update) = 0;

  /// Requests that need no more tokens, each told once.
  virtual std::vector<std::size_t> take_stops() { return {}; }
  /// Of the first request that ended with an HTTP error.
  virtual const FinishReason* failure() const = 0;
  /// In the order of the requests; none where the protocol is no chat.
  virtual std::vector<const ChatChoice*> chat_choices() const { return {}; }

  /// After the last update: the body.
  virtual std::string body() = 0;

  /// Begins the stream.
  virtual std::vector<ServerEvent> begin() = 0;
  /// What is new since the last events.
  virtual std::vector<ServerEvent> next() = 0;
  /// Behind the last of them.
  virtual std::vector<ServerEvent> end() { return {}; }
  /// Ends a stream that has begun, in place of next() and end().
  virtual std::vector<ServerEvent> fail(const ApiError& error) = 0;
  /// For clients of a stream that is silent; empty: a comment will do.
  virtual std::vector<ServerEvent> keep_alive() const { return {}; }
};

/// The same of a protocol whose answer is one message, and whose events have names: Responses, Anthropic's
/// messages.
class MessageAnswer : public ProtocolAnswer {
 public:
  void add(std::size_t index, const GenerateUpdate& update) final;
  std::vector<std::size_t> take_stops() final;
  const FinishReason* failure() const final;
  std::vector<const ChatChoice*> chat_choices() const final { return {&choice()}; }
  std::vector<ServerEvent> begin() final { return events_of_beginning(); }
  std::vector<ServerEvent> next() final;
  std::vector<ServerEvent> fail(const ApiError& error) final;
  std::string body() final { return json_text(whole()); }

 protected:
  virtual json::object whole() const = 0;
  virtual const ChatChoice& choice() const = 0;
  /// The first time; then none.
  virtual std::vector<ServerEvent> events_of_beginning() = 0;
  /// The first update also begins the stream, the last one ends it.
  virtual std::vector<ServerEvent> events_of(const GenerateUpdate& update) = 0;
  virtual std::vector<ServerEvent> events_of_failure(const ApiError& error) = 0;

 private:
  std::vector<ServerEvent> events_;  // not told yet
  bool is_stopped_ = false;
};

}  // namespace slime::engine
