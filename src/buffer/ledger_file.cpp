#include "buffer/ledger_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "buffer/append_file.h"
#include "buffer/ledger_state.h"
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
  const auto* sums = line.entry ? std::get_if<LedgerSums>(&*line.entry) : nullptr;
  if (sums == nullptr) return line;
  if (number_ > 1) {
    line.entry.reset();  // they stand at the beginning or not at all
  } else {
    line.end = position_ = sums->position;
  }
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
    if (const auto* sums = std::get_if<LedgerSums>(&*line->entry)) {
      scan.collected_to = sums->position;
      scan.sums_bytes = static_cast<int64_t>(to_line(*line->entry).size());
    }
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

namespace {

/// The bytes of the file that hold what lies between two positions.
void copy_lines(const std::filesystem::path& from, const LedgerScan& scan, int64_t begin,
                int64_t end, AppendFile& to) {
  std::ifstream file(from, std::ios::binary);
  file.seekg(begin - scan.collected_to + scan.sums_bytes);
  std::vector<char> block(std::size_t{1} << 20);
  for (int64_t left = end - begin; left > 0;) {
    const auto count =
        static_cast<std::streamsize>(std::min(left, static_cast<int64_t>(block.size())));
    if (!file.read(block.data(), count))
      throw ConfigError(fmt::format("{}: read error", from.string()));
    if (const auto written = to.append({block.data(), static_cast<std::size_t>(count)}); !written)
      throw ConfigError(
          fmt::format("{}: a copy cannot be written: {}", from.string(), written.error().message));
    left -= count;
  }
}

void sync(AppendFile& file, const std::filesystem::path& path) {
  if (const auto synced = file.sync(); !synced)
    throw ConfigError(
        fmt::format("{}: cannot be made durable: {}", path.string(), synced.error().message));
  sync_directory(path);
}

/// Of the lines that count before `position`.
LedgerSums sums_before(const std::filesystem::path& path, const LedgerScan& scan,
                       int64_t position) {
  LedgerState state;
  std::optional<LedgerTotals> totals;
  int64_t num_before = 0;
  LedgerReader reader(path);
  SegmentCursor cursor(segments_that_count(scan, position));
  for (auto line = reader.next(); line && line->begin < position; line = reader.next()) {
    if (!line->entry || !cursor.counts(line->begin)) continue;
    if (const auto* sums = std::get_if<LedgerSums>(&*line->entry)) {
      state = LedgerState(*sums);
      totals = sums->totals;
      num_before = sums->num_before;
    } else if (const auto* record = std::get_if<LedgerRecord>(&*line->entry)) {
      state.add(*record);
    } else if (const auto* next = std::get_if<LedgerTotals>(&*line->entry)) {
      totals = *next;
      if (next->step < 0) num_before = state.summary().dispatched - next->next_ordinal;
    }
  }
  LedgerSums sums = state.sums();
  sums.position = position;
  sums.totals = totals;
  sums.num_before = num_before;
  return sums;
}

}  // namespace

void copy_ledger(const std::filesystem::path& from, const std::filesystem::path& to,
                 int64_t position) {
  const LedgerScan scan = scan_ledger(from, position);
  if (!scan.has_begin_at || position > scan.whole_bytes || position < scan.collected_to) {
    throw ConfigError(fmt::format("{}: no line ends at byte {}; {}", from.string(), position,
                                  position < scan.collected_to
                                      ? "what lies before was collected"
                                      : "it is damaged or of another run"));
  }
  const std::unique_ptr<AppendFile> file = create_append_file(to);
  LedgerScan whole_file = scan;  // the line of sums too
  whole_file.sums_bytes = 0;
  copy_lines(from, whole_file, scan.collected_to, position + scan.sums_bytes, *file);
  sync(*file, to);
}

int64_t collect_ledger(const std::filesystem::path& path, int64_t position) {
  const LedgerScan scan = scan_ledger(path, position);
  if (position <= scan.collected_to || !scan.has_begin_at || position > scan.whole_bytes) return 0;
  for (const LedgerScan::RollbackLine& line : scan.rollbacks)
    if (line.begin >= position && line.to < position) return 0;
  const std::string sums = to_line(sums_before(path, scan, position));
  const int64_t freed =
      position - scan.collected_to + scan.sums_bytes - static_cast<int64_t>(sums.size());
  if (freed <= 0) return 0;
  std::filesystem::path collected = path;
  collected += ".collected";
  std::error_code error;
  std::filesystem::remove(collected, error);  // of a process that died
  {
    const std::unique_ptr<AppendFile> file = create_append_file(collected);
    if (const auto written = file->append(sums); !written)
      throw ConfigError(
          fmt::format("{}: cannot be written: {}", collected.string(), written.error().message));
    copy_lines(path, scan, position, scan.whole_bytes, *file);
    sync(*file, collected);
  }
  std::filesystem::rename(collected, path, error);
  if (error)
    throw ConfigError(fmt::format("{}: cannot be replaced: {}", path.string(), error.message()));
  sync_directory(path);
  return freed;
}

}  // namespace slime::buffer
