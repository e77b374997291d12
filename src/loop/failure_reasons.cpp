#include "loop/failure_reasons.h"

#include <fmt/format.h>

#include <algorithm>

namespace slime::loop {
namespace {

constexpr std::size_t kMostKindsTold = 5;  // of a step; more are counted together

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

}  // namespace slime::loop
