#include "reward/kept_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "net/digest.h"

namespace slime::reward {
namespace {

/// Outputs of several runs count their groups from 0 again, so the number alone is not enough.
json::array group_of(const json::object& row) {
  json::array group;
  for (const char* name : {"group", "prompt"}) {
    const json::value* value = row.if_contains(name);
    group.push_back(value != nullptr ? *value : json::value());
  }
  return group;
}

double score_of(const json::object& row) { return row.at("score").to_number<double>(); }

}  // namespace

void KeptRows::begin_group(const json::object& row, const std::string& where) {
  if (!rule_.best) return;  // each row counts for itself
  const json::array group = group_of(row);
  if (group == json::array{nullptr, nullptr})
    throw ConfigError(
        fmt::format("{}: neither group nor prompt says whose response it is, which "
                    "--keep-best needs",
                    where));
  if (begun_.insert(net::sha256(json_text(group))).second) return;
  throw ConfigError(
      fmt::format("{}: {} with the same prompt was there before, and other rows since; "
                  "--keep-best needs the rows of a prompt one after the other, so sort "
                  "them, or score outputs of slime generate one by one",
                  where, group[0].is_null() ? "a row" : "group " + json_text(group[0])));
}

void KeptRows::add(json::object row, const std::string& where) {
  if (!rule_.chooses()) {
    ++num_kept_;
    return write_(row);
  }
  if (!group_.empty() && group_of(group_.front()) != group_of(row)) end_group();
  if (group_.empty()) begin_group(row, where);
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
