#pragma once

/// A queue of the verbs that another program asks of a run, with their answers.
///
///   who asks (any thread):    add -> call_when_answered -> answer_of
///   the loop's thread:        next -> answer, one verb at a time; end, once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/json.h"

namespace slime::loop {

struct Verb {
  int64_t number = 0;  // from 1 on, in the order of asking
  std::string name;    // "generate"
  json::object arguments;
  bool is_awaited = false;  // somebody waits for the answer
};

struct VerbError {
  std::string message;
  bool is_refusal = false;  // nothing was done, and the run goes on
};

using VerbAnswer = std::variant<json::object, VerbError>;

/// One class because a verb is in one of four places at each moment: waiting, under way, answered, forgotten.
class VerbQueue {
 public:
  /// Answers that are kept for who asks again.
  static constexpr std::size_t kKeptAnswers = 256;
  /// Verbs that may wait.
  static constexpr std::size_t kMostWaiting = 64;

  /// Its number. Behind end() it is answered at once. Throws ConfigError when too many wait.
  int64_t add(std::string name, json::object arguments);
  /// Whether a verb of this name waits or is under way.
  bool has(std::string_view name) const;
  /// Somebody awaits the verb: `call` is called once, from any thread, when it is answered, or at once.
  /// The next call for the same verb replaces it. Throws ConfigError for a number that is not there.
  void call_when_answered(int64_t number, std::function<void()> call);
  /// Nothing: it is not answered yet. Throws ConfigError for a number that is not there.
  std::optional<VerbAnswer> answer_of(int64_t number) const;

  /// Which of the waiting verbs is next; nothing: none may begin.
  using Choose = std::function<std::optional<std::size_t>(const std::deque<Verb>& waiting)>;
  /// Waits until `choose` finds one, no longer than `limit`. It is under way until answer().
  std::optional<Verb> next(const Choose& choose, std::chrono::milliseconds limit);
  void answer(int64_t number, VerbAnswer answer);
  /// The run is over: all verbs that are not answered get this, and those to come.
  void end(VerbError error);

 private:
  void put_answer(std::unique_lock<std::mutex>& lock, int64_t number, VerbAnswer answer);
  void require_known(int64_t number) const;

  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::deque<Verb> waiting_;
  std::optional<Verb> under_way_;
  std::map<int64_t, VerbAnswer> answers_;
  std::map<int64_t, std::function<void()>> calls_;
  std::optional<VerbError> ended_;
  int64_t num_verbs_ = 0;
};

}  // namespace slime::loop
