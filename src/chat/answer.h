#pragma once

/// Answer of a chat completion, put together from the events of its stream.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/conversation.h"
#include "core/json.h"

namespace slime::chat {

/// A token that was drawn, with its probability.
struct DrawnToken {
  std::string bytes;  // may be a part of a character
  double log_prob = 0;
};

/// Delta of an answer: the content of one event of the stream.
struct AnswerPart {
  std::string thoughts;
  std::string content;
  std::vector<std::size_t>
      calls;  // places in Answer::calls whose arguments have grown, or that are new
  std::vector<DrawnToken> tokens;  // with log-probs alone
};

struct Answer {
  std::string thoughts;
  std::string content;
  std::vector<ToolCall> calls;
  std::string finish;  // "stop", "length", "tool_calls"; empty: it was broken off
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;  // thoughts included; 0: the server did not say
};

/// Server-sent events out of bytes as they arrive.
class EventLines final {
 public:
  /// Calls `use` with the data of each event that is whole. False once a line is longer than any
  /// server of this protocol sends.
  bool add(std::string_view bytes, const std::function<void(std::string_view data)>& use);

 private:
  static constexpr std::size_t kLongestLine = std::size_t{16} << 20;
  std::string line_;
};

/// Adds the event `data` of a stream to the answer. Empty for the end of the stream and for events without
/// news. An error that the server tells in its stream is thrown as std::runtime_error.
AnswerPart add_event(std::string_view data, Answer& answer);

/// Error message of an HTTP response with another status than 200.
std::string message_of_error(int status, std::string_view body);

}  // namespace slime::chat
