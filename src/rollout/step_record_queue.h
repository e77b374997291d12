#pragma once

/// Bounded queue of a step's records, from the rollout's thread to the loop.
///
/// The thread asks has_room() before it judges a group, so a full queue holds groups back without
/// holding up the thread, on which rewards meet their deadlines and evaluations go on. Records that
/// come in one go (a step that was stopped, its end) wait here until there is room.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/bounded_queue.h"
#include "rollout/rollout.h"

namespace slime::rollout {

class StepRecordQueue {
 public:
  explicit StepRecordQueue(std::size_t max_waiting) : limit_(max_waiting), queue_(max_waiting) {}

  // The rollout's thread.

  /// The next put() goes to the queue: only this thread adds to it.
  bool has_room() const { return waiting_.empty() && queue_.size() < limit_; }
  void put(StepRecord record) {
    if (std::holds_alternative<Group>(record)) ++num_groups_;
    waiting_.push_back(std::move(record));
    refill();
  }
  /// To be called after each take().
  void refill() {
    while (!waiting_.empty() && queue_.try_push(waiting_.front())) waiting_.pop_front();
  }
  /// Copies of the groups in it, in their order. Only while the loop's thread takes nothing.
  std::vector<Group> waiting_groups() {
    std::vector<Group> groups;
    const auto copy = [&groups](const StepRecord& record) {
      if (const auto* group = std::get_if<Group>(&record)) groups.push_back(*group);
    };
    for (std::size_t left = queue_.size(); left > 0; --left) {
      std::optional<StepRecord> record = queue_.try_pop();
      copy(*record);
      queue_.try_push(*record);
    }
    std::ranges::for_each(waiting_, copy);
    return groups;
  }
  /// No record comes any more.
  void close() { queue_.close(); }

  // The loop's thread.

  /// There is a record, or there will be none.
  bool has_answer() const { return queue_.size() > 0 || queue_.is_closed(); }
  /// The same, once there is one within this time.
  bool has_answer_within(std::chrono::milliseconds time) { return queue_.wait_for(time); }
  /// Waits; empty when the queue was closed.
  std::optional<StepRecord> take() {
    std::optional<StepRecord> record = queue_.pop();
    if (record && std::holds_alternative<Group>(*record)) --num_groups_;
    return record;
  }

  /// Groups in it. Any thread.
  int64_t num_groups() const { return num_groups_; }

 private:
  const std::size_t limit_;
  std::atomic<int64_t> num_groups_{0};
  std::deque<StepRecord> waiting_;
  BoundedQueue<StepRecord> queue_;
};

}  // namespace slime::rollout
