#pragma once

/// Lines of `slime score` in batches, because a function scores many responses at the same time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_lines.h"

namespace slime::cli {

struct ScoreLine {
  json::object record;
  std::string where;    // "responses.jsonl, line 7"
  int64_t ordinal = 0;  // of the line
  int64_t group = 0;    // lines with the same "prompt" and "group" that follow one another
};

class ScoreLines {
 public:
  /// `size`: of a batch. `whole_groups`: a batch does not end within a group, and may be longer.
  ScoreLines(JsonLines& input, std::size_t size, bool whole_groups)
      : input_(input), size_(size), whole_groups_(whole_groups) {}

  /// Empty: there are no more lines.
  std::vector<ScoreLine> next();

 private:
  std::optional<ScoreLine> read();

  JsonLines& input_;
  const std::size_t size_;
  const bool whole_groups_;
  std::optional<ScoreLine> held_;  // of the next batch
  json::object key_;               // prompt and group of the line that was read last
  int64_t group_ = 0;
  int64_t num_lines_ = 0;
};

}  // namespace slime::cli
