#pragma once

/// Answers that requests get later: a request is answered at once with the id of a future, which the client
/// then waits for.
///
/// Answers are kept for a client that asks again, the newest first; older ones are forgotten.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "tinker/answers.h"

namespace slime::tinker {

/// A request_id that there is none of, or whose answer is forgotten.
class UnknownFuture : public std::runtime_error {
 public:
  UnknownFuture(const std::string& message, bool is_lost)
      : std::runtime_error(message), is_lost_(is_lost) {}
  /// It was given out by a process that has ended: who asks again with the original request gets a new one.
  bool is_lost() const { return is_lost_; }

 private:
  bool is_lost_;
};

/// Category of an error in the protocol: a wrong request, or a failure of the server.
enum class Blame { kUser, kServer };

/// The answer of a request that failed.
json::object failure_of(const std::string& message, Blame blame);
bool is_failure(const Answer& answer);

/// Answer of a job: what it returns, or the failure that its exception means.
Answer outcome_of(const std::function<Answer()>& job);

/// One class because an id is open, answered or forgotten. Any thread.
class Futures {
 public:
  static constexpr std::size_t kKeptAnswers = 4096;
  static constexpr std::size_t kKeptBytes = std::size_t{512} << 20;

  /// `start`: which process of its store this is.
  explicit Futures(int64_t start) : start_(start) {}

  /// A new id: "session-1:req-2-17" of the second start.
  std::string open(const std::string& session);
  /// One of an earlier process.
  void open_again(const std::string& id);
  /// Does nothing for one that has, or had, an answer.
  void answer(const std::string& id, Answer answer);
  void fail(const std::string& id, const std::string& message, Blame blame);

  /// `call` is called once, from any thread, when the answer is there, or at once. The next call for the
  /// same id replaces it. Throws UnknownFuture.
  void call_when_answered(const std::string& id, std::function<void()> call);
  /// Null: it is not there yet. Throws UnknownFuture.
  std::shared_ptr<const Answer> answer_of(const std::string& id) const;
  /// Of who waits no longer: what call_when_answered() was given is dropped, and not called.
  void drop_calls();

 private:
  struct Future {
    std::shared_ptr<const Answer> answer;
    std::function<void()> call;
  };
  Future& known(const std::string& id);
  const Future& known(const std::string& id) const;

  const int64_t start_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, Future> futures_;
  std::deque<std::string> answered_;  // oldest first
  std::size_t bytes_ = 0;             // of the answers
  int64_t num_opened_ = 0;
};

}  // namespace slime::tinker
