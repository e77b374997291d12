#include "reward/kept_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace slime::reward {
namespace {

json::value group_of(const json::object& row) {
  if (const json::value* group = row.if_contains("group")) return *group;
  const json::value* prompt = row.if_contains("prompt");
  return prompt != nullptr ? *prompt : json::value();
}

double score_of(const json::object& row) { return row.at("score").to_number<double>(); }

}  // namespace

void KeptRows::add(json::object row) {
  if (!rule_.chooses()) {
    ++num_kept_;
    return write_(row);
  }
  if (!group_.empty() && group_of(group_.front()) != group_of(row)) end_group();
  group_.push_back(std::move(row));
}

void KeptRows::end_group() {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < group_.size(); ++i) {
    const json::object& row = group_[i];
    if (row.at("score").is_null()) continue;
    if (rule_.min_score && score_of(row) < *rule_.min_score) continue;
    const json::value* status = row.if_contains("status");
    if (status != nullptr && *status == "truncated" && !rule_.keeps_truncated) {
      ++num_truncated_;
      continue;
    }
    chosen.push_back(i);
  }
  std::ranges::stable_sort(chosen, std::ranges::greater(),
                           [this](std::size_t i) { return score_of(group_[i]); });
  if (rule_.best && static_cast<int64_t>(chosen.size()) > *rule_.best)
    chosen.resize(static_cast<std::size_t>(*rule_.best));
  std::ranges::sort(chosen);
  for (const std::size_t i : chosen) write_(group_[i]);
  num_kept_ += static_cast<int64_t>(chosen.size());
  group_.clear();
}

}  // namespace slime::reward
