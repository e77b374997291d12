#include "buffer/ledger_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace slime::buffer {

LedgerReader::LedgerReader(const std::filesystem::path& path)
    : path_(path), file_(path, std::ios::binary) {
  if (!file_)
    throw ConfigError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
}

std::optional<LedgerLine> LedgerReader::next() {
  if (!std::getline(file_, text_)) {
    if (file_.bad())
      throw ConfigError(fmt::format("{}: read error at byte {}", path_.string(), position_));
    return std::nullopt;
  }
  const bool has_end = !file_.eof();
  LedgerLine line{.number = ++number_, .begin = position_};
  position_ += static_cast<int64_t>(text_.size()) + (has_end ? 1 : 0);
  line.end = position_;
  if (has_end) line.entry = parse_ledger_line(text_);
  return line;
}

LedgerScan scan_ledger(const std::filesystem::path& path, int64_t asked_for) {
  LedgerReader reader(path);
  LedgerScan scan;
  bool is_damaged = false;
  while (std::optional<LedgerLine> line = reader.next()) {
    scan.file_bytes = line->end;
    if (!line->entry) {
      is_damaged = true;
      if (scan.damaged.size() < LedgerScan::kMostDamaged) scan.damaged.push_back(*line);
      continue;
    }
    ++scan.num_records;
    if (const auto* rollback = std::get_if<Rollback>(&*line->entry))
      scan.rollbacks.push_back({line->begin, rollback->position});
    scan.has_line_after_damage = scan.has_line_after_damage || is_damaged;
    if (is_damaged) continue;
    scan.has_begin_at = scan.has_begin_at || line->begin == asked_for;
    scan.whole_bytes = line->end;
  }
  scan.has_begin_at = scan.has_begin_at || scan.whole_bytes == asked_for;
  return scan;
}

std::vector<Segment> segments_that_count(const LedgerScan& scan, int64_t end) {
  // Backwards from the end: a rollback leads to the position before which records count again, over
  // earlier rollbacks that were undone themselves.
  std::vector<Segment> segments;
  for (auto line = scan.rollbacks.rbegin(); line != scan.rollbacks.rend(); ++line) {
    if (line->begin >= end) continue;
    segments.push_back({line->begin, end});
    end = std::min(line->begin, line->to);
  }
  segments.push_back({0, end});
  std::ranges::reverse(segments);
  return segments;
}

bool SegmentCursor::counts(int64_t begin) {
  while (index_ < segments_.size() && segments_[index_].end <= begin) ++index_;
  return index_ < segments_.size() && segments_[index_].begin <= begin;
}

}  // namespace slime::buffer
