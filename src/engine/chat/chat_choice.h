#pragma once

/// One choice of a chat answer: tokens of the engine to the parts of a message.
///
///   ChatChoice choice(call.reading, call.requests[i]);
///   for (const text::MessageEvent& event : choice.add(update)) send(event);
///   if (choice.wants_stop()) stop the engine's request;
///
/// Whole answers are made of the same events: choice.message() is their sum.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/chat_prompt.h"
#include "engine/chat/choice_tokens.h"
#include "engine/chat/token_text.h"
#include "text/messages/message.h"
#include "text/messages/message_parser.h"

namespace slime::engine {

class ChatChoice final {
 public:
  ChatChoice(std::shared_ptr<const ChatReading> reading, const GenerateRequest& request);

  /// The events that the update decided. Their ranges are places in tokens().ids.
  std::vector<text::MessageEvent> add(const GenerateUpdate& update);

  /// With parallel_tool_calls false the first call has ended: what the engine still samples does not
  /// count, and it may be stopped.
  bool wants_stop() const { return parser_.wants_stop(); }

  /// The parts so far.
  const text::Message& message() const { return message_; }
  /// All that was sampled, marks included, with log-probs as far as they were asked for.
  const ChoiceTokens& tokens() const { return tokens_; }
  /// The last update without its tokens: finish, counts, times.
  const GenerateUpdate& last_update() const { return last_; }
  const std::optional<FinishReason>& finish() const { return last_.finish; }
  /// Versions of the weights that sampled the tokens, run by run.
  const std::vector<VersionRun>& versions() const { return versions_; }

  /// OpenAI's word: stop, length, tool_calls, abort; empty while it runs.
  std::string_view finish_word() const;
  /// Tokens of the thoughts, without the marks around them.
  int64_t num_reasoning_tokens() const;
  /// Calls that are ill-formed or unreadable.
  int num_call_errors() const { return parser_.num_errors(); }

 private:
  std::shared_ptr<const ChatReading> reading_;
  TokenText text_;
  text::MessageParser parser_;
  text::Message message_;
  ChoiceTokens tokens_;
  GenerateUpdate last_;
  std::vector<VersionRun> versions_;
};

}  // namespace slime::engine
