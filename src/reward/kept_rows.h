#pragma once

/// Rejection sampling on scored rows: which of them are written.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/json.h"

namespace slime::reward {

struct KeepRule {
  std::optional<double> min_score;
  std::optional<int64_t> best;   // of a group, at most so many: the first of the best
  bool keeps_truncated = false;  // their end is missing, which training would take for the end
  bool chooses() const { return min_score || best; }
};

/// Rows of a group come one after the other; a group is known by the fields `group` and `prompt`, of which one may be missing.
class KeptRows {
 public:
  using Write = std::function<void(const json::object& row)>;
  KeptRows(KeepRule rule, Write write) : rule_(rule), write_(std::move(write)) {}

  /// A row with its "score", which may be null. With a number of best ones, throws ConfigError that starts with
  /// `where` for a row without a group, and for one whose group ended before.
  void add(json::object row, const std::string& where);
  /// Behind the last row.
  void end() { end_group(); }

  int64_t num_kept() const { return num_kept_; }
  int64_t num_truncated() const { return num_truncated_; }

 private:
  void end_group();
  void begin_group(const json::object& row, const std::string& where);

  const KeepRule rule_;
  const Write write_;
  std::vector<json::object> group_;
  std::unordered_set<std::string> begun_;  // digests of the groups so far
  int64_t num_kept_ = 0;
  int64_t num_truncated_ = 0;
};

}  // namespace slime::reward
