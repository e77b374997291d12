#pragma once

/// A ledger file as lines, read one by one: ten million prompts are not held in memory.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "buffer/ledger_record.h"

namespace slime::buffer {

struct LedgerLine {
  int64_t number = 0;                // counted from 1, as editors do
  int64_t begin = 0;                 // bytes: [begin, end) of the ledger, with the line's end; sums
  int64_t end = 0;                   // have those of all that they are of
  std::optional<LedgerEntry> entry;  // nothing: torn or damaged
};

class LedgerReader {
 public:
  /// Throws ConfigError when the file cannot be opened.
  explicit LedgerReader(const std::filesystem::path& path);

  /// Nothing at the end of the file. Throws ConfigError on a read error.
  std::optional<LedgerLine> next();

 private:
  const std::filesystem::path path_;
  std::ifstream file_;
  std::string text_;
  int64_t number_ = 0;
  int64_t position_ = 0;
};

/// Bytes [begin, end) of the file.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
};

/// What one reading finds, before it is known which lines count.
struct LedgerScan {
  struct RollbackLine {
    int64_t begin = 0;
    int64_t to = 0;
  };
  std::vector<RollbackLine> rollbacks;
  std::vector<LedgerLine> damaged;  // the first kMostDamaged lines that are not whole
  int64_t num_records = 0;          // whole lines, rolled back ones and rollbacks included
  int64_t whole_bytes = 0;          // up to the first line that is torn or damaged
  int64_t file_bytes = 0;
  bool has_line_after_damage = false;  // then it is no torn end but damage in the middle
  bool has_begin_at = false;           // whole lines end, or begin, at the byte that was asked for
  int64_t collected_to = 0;            // positions before it are in the sums of the first line
  int64_t sums_bytes = 0;              // of that line

  static constexpr std::size_t kMostDamaged = 100;
};

/// Throws ConfigError when the file cannot be read.
LedgerScan scan_ledger(const std::filesystem::path& path, int64_t asked_for = 0);

/// Where lines before byte `end` count, in order: rollbacks applied.
std::vector<Segment> segments_that_count(const LedgerScan& scan, int64_t end);

/// Writes the lines of the ledger `from` that lie before byte `position` into the new file `to`,
/// durably. Throws ConfigError when lines do not end there, and when the system refuses.
void copy_ledger(const std::filesystem::path& from, const std::filesystem::path& to,
                 int64_t position);

/// Replaces the ledger at `path`, in which lines end at `position`, by one whose first line has the
/// sums of all before that. Readers see the one or the other, whenever the process dies. Returns the
/// bytes that this frees; 0: nothing was done, since there is nothing to collect or a rollback leads
/// across the position. Nobody writes to the file meanwhile.
int64_t collect_ledger(const std::filesystem::path& path, int64_t position);

/// Whether lines count, asked in the order of the file.
class SegmentCursor {
 public:
  explicit SegmentCursor(std::vector<Segment> segments) : segments_(std::move(segments)) {}
  bool counts(int64_t begin);

 private:
  const std::vector<Segment> segments_;
  std::size_t index_ = 0;
};

}  // namespace slime::buffer
