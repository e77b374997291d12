#include "buffer/rollout_groups.h"

#include <algorithm>

namespace slime::buffer {
namespace {

std::size_t bytes_of(const RolloutGroup& group) {
  std::size_t bytes = 0;
  for (const RolloutItem& item : group.items) bytes += item.text.size();
  return bytes;
}

}  // namespace

void RolloutGroups::begin(std::string task_type, int64_t group_size) {
  if (group_size != group_size_ || task_type != task_type_) answers_.clear();
  task_type_ = std::move(task_type);
  group_size_ = group_size;
}

bool RolloutGroups::may_begin(const std::string& task_type, int64_t group_size) const {
  if (whole_.empty() && filling_.empty()) return true;
  return group_size == group_size_ && (task_type_.empty() || task_type == task_type_);
}

bool RolloutGroups::knows(const RolloutItem& item) const {
  return item.uid && known_uids_.contains(*item.uid);
}

void RolloutGroups::remember(uint64_t uid) {
  if (!known_uids_.insert(uid).second) return;
  uids_.push_back(uid);
  if (uids_.size() <= kRememberedUids) return;
  known_uids_.erase(uids_.front());
  uids_.pop_front();
}

int64_t RolloutGroups::write(RolloutItem item, std::optional<int64_t> number) {
  if (item.uid) remember(*item.uid);
  ++written_.num_items;
  if (item.reward) {
    ++written_.num_rewards;
    written_.sum_of_rewards += *item.reward;
  }
  written_.instances.insert(item.instance);
  ++num_items_;
  num_bytes_ += item.text.size();
  auto [at, is_new] = filling_.try_emplace(item.instance);
  RolloutGroup& group = at->second;
  if (is_new) {
    group.number = number.value_or(next_number_);
    next_number_ = std::max(next_number_, group.number + 1);
    group.instance = item.instance;
  }
  group.items.push_back(std::move(item));
  const int64_t belongs_to = group.number;
  if (static_cast<int64_t>(group.items.size()) >= group_size_) {
    whole_.push_back(std::move(group));
    filling_.erase(at);
  }
  return belongs_to;
}

std::vector<int64_t> RolloutGroups::next_groups(std::size_t max_groups,
                                                std::size_t limit_bytes) const {
  std::vector<int64_t> numbers;
  std::size_t bytes = 0;
  for (const RolloutGroup& group : whole_) {
    bytes += bytes_of(group);
    if (numbers.size() == max_groups || (!numbers.empty() && bytes > limit_bytes)) break;
    numbers.push_back(group.number);
  }
  return numbers;
}

std::optional<std::vector<RolloutGroup>> RolloutGroups::take(const std::vector<int64_t>& numbers,
                                                             const std::string& request_id) {
  std::vector<RolloutGroup> groups;
  std::deque<RolloutGroup> rest;
  const std::unordered_set<int64_t> wanted(numbers.begin(), numbers.end());
  const auto is_wanted = [&](const RolloutGroup& group) { return wanted.contains(group.number); };
  const auto found = std::ranges::count_if(whole_, is_wanted);
  if (static_cast<std::size_t>(found) != numbers.size() || wanted.size() != numbers.size())
    return std::nullopt;
  for (RolloutGroup& group : whole_) {
    if (!is_wanted(group)) {
      rest.push_back(std::move(group));
      continue;
    }
    num_items_ -= static_cast<int64_t>(group.items.size());
    num_bytes_ -= bytes_of(group);
    groups.push_back(std::move(group));
  }
  whole_ = std::move(rest);
  num_given_ += found;
  if (!request_id.empty()) {
    answers_.push_back({request_id, groups});
    if (answers_.size() > kKeptAnswers) answers_.pop_front();
  }
  return groups;
}

const KeptAnswer* RolloutGroups::find_answer(const std::string& request_id) const {
  const auto found = std::ranges::find(answers_, request_id, &KeptAnswer::request_id);
  return request_id.empty() || found == answers_.end() ? nullptr : &*found;
}

std::vector<const RolloutGroup*> RolloutGroups::waiting() const {
  std::vector<const RolloutGroup*> groups;
  for (const RolloutGroup& group : whole_) groups.push_back(&group);
  const auto num_whole = static_cast<std::ptrdiff_t>(groups.size());
  for (const auto& [instance, group] : filling_) groups.push_back(&group);
  std::ranges::sort(groups.begin() + num_whole, groups.end(), {}, &RolloutGroup::number);
  return groups;
}

void RolloutGroups::restore(int64_t next_number, int64_t num_given,
                            const std::vector<uint64_t>& uids) {
  next_number_ = next_number;
  num_given_ = num_given;
  for (const uint64_t uid : uids) remember(uid);
}

}  // namespace slime::buffer
