#pragma once

/// Finished rollouts on their way to the trainer: items of one prompt gather to a group, whole
/// groups wait in the order in which they became whole, and each is given out once.
///
/// A group has exactly `group_size` items; the next item of its prompt begins another group, as it
/// does in a next epoch. An answer that was asked for under an id is kept, so that who lost it on the
/// way may ask again; kKeptAnswers of them are.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "buffer/rollout_item.h"

namespace slime::buffer {

struct RolloutGroup {
  int64_t number = 0;  // in the order in which groups began
  std::string instance;
  std::vector<RolloutItem> items;
};

struct KeptAnswer {
  std::string request_id;
  std::vector<RolloutGroup> groups;
};

/// What was written since groups were given out last.
struct WrittenSince {
  int64_t num_items = 0;
  int64_t num_rewards = 0;
  double sum_of_rewards = 0;
  std::unordered_set<std::string> instances;
};

/// One thread. Every change is one call here and one record of the log (buffer/rollout_log.h).
class RolloutGroups final {
 public:
  static constexpr std::size_t kKeptAnswers = 8;
  static constexpr std::size_t kRememberedUids = 65'536;

  explicit RolloutGroups(int64_t group_size) : group_size_(group_size) {}

  /// A generator begins. Nothing waits, or it is of the same task and size: may_begin().
  void begin(std::string task_type, int64_t group_size);
  bool may_begin(const std::string& task_type, int64_t group_size) const;

  /// Whether an item of this uid is here, or was among the last kRememberedUids.
  bool knows(const RolloutItem& item) const;
  bool begins_group(const RolloutItem& item) const { return !filling_.contains(item.instance); }
  /// The number of the group that the item belongs to now. `number` is that of a log: a group that
  /// begins gets it.
  int64_t write(RolloutItem item, std::optional<int64_t> number = {});

  /// Numbers of the groups that would be given out: the oldest, at most `max_groups`, and after the
  /// first as many as fit into `limit_bytes`.
  std::vector<int64_t> next_groups(std::size_t max_groups, std::size_t limit_bytes) const;
  /// Gives them out. Nothing when one of them is not whole and waiting; then nothing changed.
  std::optional<std::vector<RolloutGroup>> take(const std::vector<int64_t>& numbers,
                                                const std::string& request_id);
  const KeptAnswer* find_answer(const std::string& request_id) const;

  const std::string& task_type() const { return task_type_; }
  int64_t group_size() const { return group_size_; }
  int64_t next_number() const { return next_number_; }
  std::size_t num_whole() const { return whole_.size(); }
  std::size_t num_filling() const { return filling_.size(); }
  int64_t num_items() const { return num_items_; }      // of groups that wait or fill
  std::size_t num_bytes() const { return num_bytes_; }  // of their texts
  int64_t num_given() const { return num_given_; }      // groups
  const WrittenSince& written() const { return written_; }
  void forget_written() { written_ = {}; }

  // For a log that is written anew.
  std::vector<const RolloutGroup*> waiting() const;  // whole ones in their order, then the others
  const std::deque<KeptAnswer>& answers() const { return answers_; }
  const std::deque<uint64_t>& uids() const { return uids_; }
  /// Before anything else: where numbers go on, and what has been seen.
  void restore(int64_t next_number, int64_t num_given, const std::vector<uint64_t>& uids);

 private:
  void remember(uint64_t uid);

  int64_t group_size_;
  std::string task_type_;
  int64_t next_number_ = 0;
  int64_t num_items_ = 0;
  std::size_t num_bytes_ = 0;
  int64_t num_given_ = 0;
  std::unordered_map<std::string, RolloutGroup> filling_;
  std::deque<RolloutGroup> whole_;
  std::deque<KeptAnswer> answers_;
  std::deque<uint64_t> uids_;
  std::unordered_set<uint64_t> known_uids_;  // those of uids_
  WrittenSince written_;
};

}  // namespace slime::buffer
