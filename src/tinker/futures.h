#pragma once

/// Answers that requests get later: a request is answered at once with the id of a future, which the client
/// then waits for.
///
/// Answers are kept for a client that asks again, the newest first; older ones are forgotten.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/json.h"

namespace slime::tinker {

/// A request_id that there is none of, or whose answer is forgotten.
class UnknownFuture : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Category of an error in the protocol: a wrong request, or a failure of the server.
enum class Blame { kUser, kServer };

/// One class because an id is open, answered or forgotten. Any thread.
class Futures {
 public:
  static constexpr std::size_t kKeptAnswers = 4096;
  static constexpr std::size_t kKeptBytes = std::size_t{512} << 20;

  /// A new id.
  std::string open();
  /// Does nothing for one that has an answer.
  void answer(const std::string& id, const json::object& answer);
  void fail(const std::string& id, const std::string& message, Blame blame);

  /// `call` is called once, from any thread, when the answer is there, or at once. The next call for the
  /// same id replaces it. Throws UnknownFuture.
  void call_when_answered(const std::string& id, std::function<void()> call);
  /// The answer as JSON; nothing: it is not there yet. Throws UnknownFuture.
  std::optional<std::string> answer_of(const std::string& id) const;

 private:
  struct Future {
    std::optional<std::string> answer;
    std::function<void()> call;
  };
  Future& known(const std::string& id);
  const Future& known(const std::string& id) const;

  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, Future> futures_;
  std::deque<std::string> answered_;  // oldest first
  std::size_t bytes_ = 0;             // of the answers
  int64_t num_opened_ = 0;
};

}  // namespace slime::tinker
