#include "tinker/request_order.h"

#include <algorithm>
#include <utility>

namespace slime::tinker {
namespace {

constexpr std::size_t kKeptNumbers = 4096;

}  // namespace

std::optional<std::string> RequestOrder::known(int64_t seq_id) const {
  const auto found = futures_.find(seq_id);
  if (found == futures_.end()) return std::nullopt;
  return found->second;
}

void RequestOrder::remember(int64_t seq_id, std::string future) {
  futures_[seq_id] = std::move(future);
  while (futures_.size() > kKeptNumbers) futures_.erase(futures_.begin());
}

std::vector<RequestOrder::Waiting> RequestOrder::add(int64_t seq_id, std::string future, Job job) {
  remember(seq_id, future);
  waiting_[seq_id] = {std::move(future), std::move(job), std::chrono::steady_clock::now()};
  std::vector<Waiting> ready;
  while (!waiting_.empty() && waiting_.begin()->first <= next_) {
    next_ = std::max(next_, waiting_.begin()->first + 1);
    ready.push_back(std::move(waiting_.begin()->second));
    waiting_.erase(waiting_.begin());
  }
  return ready;
}

std::optional<RequestOrder::GivenUp> RequestOrder::give_up(
    std::chrono::steady_clock::time_point since_before) {
  const bool is_late = std::ranges::any_of(
      waiting_, [&](const auto& each) { return each.second.since < since_before; });
  if (!is_late) return std::nullopt;
  GivenUp given_up{.missing = next_, .futures = {}};
  for (auto& [number, each] : waiting_) {
    given_up.futures.emplace_back(number, std::move(each.future));
    next_ = number + 1;
  }
  waiting_.clear();
  return given_up;
}

}  // namespace slime::tinker
