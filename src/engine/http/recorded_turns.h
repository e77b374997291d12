#pragma once

/// Turns of an answer that is being sent, as the session has them: recorded before the answer's end leaves,
/// and taken back unless the client was there to read it.

#include <span>

#include "engine/chat/chat_choice.h"
#include "engine/chat/chat_session.h"

namespace slime::engine {

class RecordedTurns final {
 public:
  /// `session`, null where there is none, outlives the object.
  explicit RecordedTurns(ChatSession* session) : session_(session) {}
  ~RecordedTurns() {
    if (session_ != nullptr && !is_kept_) session_->forget();
  }
  RecordedTurns(const RecordedTurns&) = delete;
  RecordedTurns& operator=(const RecordedTurns&) = delete;

  void record(std::span<const ChatChoice* const> choices) {
    if (session_ != nullptr) session_->record(choices);
  }
  /// The client has read them.
  void keep() { is_kept_ = true; }
  /// The answer ends before it is one.
  void lose(std::span<const ChatChoice* const> choices) {
    if (session_ == nullptr) return;
    for (const ChatChoice* choice : choices)
      session_->lose(static_cast<int64_t>(choice->tokens().ids.size()));
  }

 private:
  ChatSession* const session_;
  bool is_kept_ = false;
};

}  // namespace slime::engine
