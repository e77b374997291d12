#pragma once

/// Conversation of a chat: what is sent again with each question, and the steps back.
///
///   system, [user, assistant, (assistant with calls, tool, assistant ...)] ...

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::chat {

/// A call of a tool in an answer.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, as the model wrote it
};

class Conversation final {
 public:
  /// Empty: none.
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  void ask(std::string_view question);
  /// The result of the first call of the last answer that has none. False: no call waits for one.
  bool add_result(std::string_view result);
  /// Names of the calls that wait for a result.
  std::vector<std::string> open_calls() const;
  /// Thoughts are no part of what is sent: templates leave out those of earlier turns.
  void answer(std::string_view content, const std::vector<ToolCall>& calls);

  /// Takes back the last question and all that came of it. False: there is none.
  bool undo();
  /// Takes back a question that has no answer.
  void take_back_question();
  /// Takes back the last answer, so that it can be drawn again. False: there is none.
  bool take_back_answer();
  /// Begins anew; the system message stays.
  void reset() { turns_.clear(); }

  bool is_empty() const { return turns_.empty(); }
  /// As chat completions take them.
  json::array messages() const;

 private:
  std::string system_;
  std::vector<json::object> turns_;
};

}  // namespace slime::chat
