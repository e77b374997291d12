#pragma once

/// Requests of one model in the order of their seq_id, whatever order they come in, and each once.
///
///   arrive 3, 1, 1, 2   ->   done 1, 2, 3; the second 1 gets the id of the first

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace slime::tinker {

/// One class because what may be done next follows from what has come. Its owner's mutex guards it.
class RequestOrder {
 public:
  using Job = std::function<void()>;
  struct Waiting {
    std::string future;
    Job job;
    std::chrono::steady_clock::time_point since;
  };

  /// The future of an earlier request with this number; nothing: it is new.
  std::optional<std::string> known(int64_t seq_id) const;
  /// Whether its turn has passed: a later one was done or given up. Number 0 may come first, or not at all.
  bool is_late(int64_t seq_id) const { return next_ > 1 && seq_id < next_; }
  /// The number of the last one whose turn came.
  int64_t last() const { return next_ - 1; }
  /// What may be done now, in order: this one, if all before it have come, and those behind it.
  std::vector<Waiting> add(int64_t seq_id, std::string future, Job job);
  /// Requests that wait for one with a lower number.
  std::size_t num_waiting() const { return waiting_.size(); }
  /// Of a request that was done in another process: numbers below the next are not waited for.
  void go_on_from(int64_t next) { next_ = std::max(next_, next); }
  void remember(int64_t seq_id, std::string future);
  /// Where a request has waited so long for one that did not come: the futures of all that wait, which are
  /// given up, and the number that is missing. The order goes on behind them.
  struct GivenUp {
    int64_t missing = 0;
    std::vector<std::pair<int64_t, std::string>> futures;  // with their numbers
  };
  std::optional<GivenUp> give_up(std::chrono::steady_clock::time_point since_before);

 private:
  int64_t next_ = 1;
  std::map<int64_t, Waiting> waiting_;      // numbers above next_
  std::map<int64_t, std::string> futures_;  // of all that came, the newest
};

}  // namespace slime::tinker
