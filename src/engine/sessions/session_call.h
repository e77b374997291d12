#pragma once

/// One request of a session, from its prompt to the record of its turns.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat/chat_session.h"
#include "engine/sessions/session.h"

namespace slime::engine {

class SessionCall final : public ChatSession {
 public:
  /// Throws ApiError when the session is closed.
  explicit SessionCall(std::shared_ptr<Session> session);
  ~SessionCall() override;
  SessionCall(const SessionCall&) = delete;
  SessionCall& operator=(const SessionCall&) = delete;

  const ServedModel& model() const override { return session_->model(); }
  void begin(ChatRequest& request) override;
  std::optional<ChatPrompt> continued(const ChatRequest& request,
                                      const json::object& options) override;
  void prepared(ChatCall& call) override;
  void refused_for_length() override;
  void record(std::span<const ChatChoice* const> choices) override;
  void forget() override;
  void lose(int64_t num_tokens) override { session_->lose(num_tokens); }

 private:
  void read_messages(const ChatRequest& request, const json::object& options);
  bool drops_thoughts(const ChatRequest& request, const Session::Recognised& recognised,
                      const json::object& options) const;
  void record(const ChatChoice& choice);

  const std::shared_ptr<Session> session_;
  std::vector<TokenId> prompt_ids_;
  json::array messages_;  // those that the turn answers
  std::string prefill_;   // how the client began the answer
  TextKey offer_;
  std::optional<TurnHistory::Found> found_;  // the turn that the prompt goes on from
  std::vector<Session::Record> records_;
};

}  // namespace slime::engine
