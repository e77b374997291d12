#pragma once

/// The lines of a ledger file: how they are written, read and judged.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "buffer/ledger.h"

namespace slime::buffer {

/// What follows byte `position` up to this record does not count.
struct Rollback {
  int64_t position = 0;
};

/// A whole line: where it begins in the file, and what it says.
struct LedgerLine {
  int64_t begin = 0;
  std::variant<LedgerRecord, Rollback> content;
};

/// With its checksum and the end of the line.
std::string to_line(const LedgerRecord& record);
std::string to_line(const Rollback& rollback);

/// The lines of a file up to the first that is torn or damaged.
struct LedgerLines {
  std::vector<LedgerLine> lines;
  int64_t whole_bytes = 0;  // of `lines`
  int64_t file_bytes = 0;
  bool has_line_after_damage = false;  // then it is no torn end but damage in the middle
};

/// Throws ConfigError when the file cannot be read.
LedgerLines read_ledger_lines(const std::filesystem::path& path);

/// The records among the lines before `position` that count, in order: rollbacks applied.
/// `num_rolled_back` may be null.
std::vector<LedgerRecord> effective_records(const std::vector<LedgerLine>& lines, int64_t position,
                                            int64_t* num_rolled_back = nullptr);

/// Why `record` cannot follow what `state` says; empty when it can.
std::string violation(const LedgerState& state, const LedgerRecord& record);

}  // namespace slime::buffer
