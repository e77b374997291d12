#include "report/failure_reasons.h"

#include <fmt/format.h>

#include <algorithm>

namespace slime::report {
namespace {

constexpr std::size_t kMostKindsTold = 5;  // of a step; more are counted together
constexpr int64_t kFirstTold = 64;         // groups that a filter drops in a row

/// 64, 1,024, 16,384, ...
bool is_told(int64_t in_a_row) {
  int64_t told = kFirstTold;
  while (told < in_a_row) told *= 16;
  return told == in_a_row;
}

}  // namespace

const FailureReason& FailureReasons::add(const std::string& reason) {
  std::string kind = reason;
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  const std::size_t order = by_kind_.size();
  FailureReason& known = by_kind_.try_emplace(kind, FailureReason{reason, 0, order}).first->second;
  ++known.count;
  return known;
}

std::vector<FailureReason> FailureReasons::by_frequency() const {
  std::vector<FailureReason> reasons;
  for (const auto& [kind, reason] : by_kind_) reasons.push_back(reason);
  std::ranges::stable_sort(reasons, std::ranges::greater(), &FailureReason::count);
  return reasons;
}

void LeftOutPrompts::add(const Group& group, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  const FailureReason& known = reasons_.add(reason);
  if (known.count == 1 && known.order < kMostKindsTold)
    say_(fmt::format("prompt {} is left out: {}", group.ordinal, reason));
}

void LeftOutPrompts::end_step() {
  const std::lock_guard lock(mutex_);
  int64_t num_untold = 0;
  for (const FailureReason& reason : reasons_.by_frequency()) {
    if (reason.order >= kMostKindsTold) {
      num_untold += reason.count;
    } else if (reason.count > 1) {
      say_(fmt::format("{} more prompts are left out like it: {}", reason.count - 1, reason.first));
    }
  }
  if (num_untold > 0)
    say_(fmt::format("{} more prompts are left out for other reasons", num_untold));
  reasons_ = FailureReasons();
}

void LeftOutPrompts::add_filtered(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!is_told(++filtered_in_a_row_)) return;
  say_(fmt::format(
      "{} groups in a row were filtered, the last as \"{}\"; the batch waits for groups "
      "that are kept",
      filtered_in_a_row_, reason));
}

void LeftOutPrompts::add_kept() {
  const std::lock_guard lock(mutex_);
  filtered_in_a_row_ = 0;
}

}  // namespace slime::report
