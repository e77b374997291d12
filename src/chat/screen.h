#pragma once

/// Picture of an answer on a terminal, or its text in a pipe, as it streams.
///
///   thought for 3.1 s, 187 words (/thoughts unfolds)        one line, redrawn while they come
///   The capital is Paris.
///   -> get_weather({"city": "Paris"})                       a call of a tool
///
/// Output of a model is untrusted input: its control characters are printed escaped, as \x1b.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "chat/answer.h"
#include "report/terminal.h"

namespace slime::chat {

/// A token with its probability: in colour from red (unlikely) to green, and as a number behind it.
std::string painted_token(std::string_view bytes, double log_prob,
                          const report::Terminal& terminal);

class Screen final {
 public:
  using Write = std::function<void(std::string_view)>;
  using Now = std::function<std::chrono::steady_clock::time_point()>;

  Screen(report::Terminal terminal, Write write, Now now = std::chrono::steady_clock::now);

  struct Look {
    bool unfolds_thoughts = false;
    /// Tokens with their probabilities, thoughts and all marks of the template included.
    bool shows_probabilities = false;
  };

  void begin(Look look);
  void add(const AnswerPart& part, const Answer& answer);
  /// `is_stopped`: by Ctrl-C.
  void end(const Answer& answer, bool is_stopped);

  /// Thoughts of an answer that is over.
  void show_thoughts(const Answer& answer);

 private:
  enum class At { kNothing, kThoughts, kContent, kTokens };
  void add_thoughts(const AnswerPart& part);
  void end_thoughts(const Answer& answer);
  void add_tokens(const AnswerPart& part);
  void print(std::string_view text);
  std::string dim(std::string_view text) const;
  std::string thought_line(const Answer& answer) const;

  const report::Terminal terminal_;
  const Write write_;
  const Now now_;
  Look look_;
  At at_ = At::kNothing;
  bool is_at_line_begin_ = true;
  std::string undecided_;  // bytes of a character that is not whole
  std::chrono::steady_clock::time_point thoughts_begin_, thoughts_drawn_, thoughts_end_;
};

}  // namespace slime::chat
