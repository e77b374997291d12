#include "cli/score_lines.h"

#include <utility>

namespace slime::cli {
namespace {

json::value member(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  return value == nullptr ? json::value() : *value;
}

}  // namespace

std::optional<ScoreLine> ScoreLines::read() {
  if (held_) return std::exchange(held_, std::nullopt);
  std::optional<json::object> record = input_.next();
  if (!record) return std::nullopt;
  json::object key{{"prompt", member(*record, "prompt")}, {"group", member(*record, "group")}};
  if (num_lines_ > 0 && key != key_) ++group_;
  key_ = std::move(key);
  return ScoreLine{.record = *std::move(record),
                   .where = input_.where(),
                   .ordinal = num_lines_++,
                   .group = group_};
}

std::vector<ScoreLine> ScoreLines::next() {
  std::vector<ScoreLine> lines;
  while (lines.size() < size_ || whole_groups_) {
    std::optional<ScoreLine> line = read();
    if (!line) break;
    if (lines.size() >= size_ && line->group != lines.back().group) {
      held_ = std::move(line);
      break;
    }
    lines.push_back(*std::move(line));
  }
  return lines;
}

}  // namespace slime::cli
