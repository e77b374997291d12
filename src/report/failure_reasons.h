#pragma once

/// Failure reasons of samples, for people: equal reasons are counted, not repeated. Reasons that
/// differ only in their numbers are equal.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"

namespace slime::report {

struct FailureReason {
  std::string first;  // as it came for the first time
  int64_t count = 0;
  std::size_t order = 0;  // kinds that came before it
};

class FailureReasons {
 public:
  const FailureReason& add(const std::string& reason);
  /// The most frequent first.
  std::vector<FailureReason> by_frequency() const;

 private:
  std::map<std::string, FailureReason> by_kind_;  // by the text without its digits
};

/// What a terminal shows of the prompts that are left out of a step because a sample failed: the
/// first of each kind of reason in full and at once (of the first five kinds), the others as counts
/// when the step ends. Any thread: a stream leaves prompts out while the loop ends a step.
class LeftOutPrompts {
 public:
  /// `say` shows a line.
  explicit LeftOutPrompts(std::function<void(std::string_view)> say) : say_(std::move(say)) {}

  void add(const Group& group, const std::string& reason);
  void end_step();

  /// A filter dropped a group: that is every run's day, but not dozens of them in a row, with which
  /// a batch may wait for ever. Says so at the 64th, 1,024th, 16,384th, ...
  void add_filtered(const std::string& reason);
  /// A group is kept, which ends the row.
  void add_kept();

 private:
  std::function<void(std::string_view)> say_;
  std::mutex mutex_;
  FailureReasons reasons_;         // of the step; guarded by mutex_
  int64_t filtered_in_a_row_ = 0;  // guarded by mutex_
};

}  // namespace slime::report
