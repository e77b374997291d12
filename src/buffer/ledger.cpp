#include "buffer/ledger.h"

#include <fmt/format.h>

#include <utility>

#include "buffer/ledger_file.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

[[noreturn]] void cannot(const std::filesystem::path& path, std::string_view action,
                         const Error& why) {
  throw ConfigError(fmt::format("{}: cannot be {}: {}", path.string(), action, why.message));
}

}  // namespace

Ledger Ledger::create(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) {
    throw ConfigError(
        fmt::format("{}: there is a ledger of another run already; resume that run, or choose "
                    "another directory",
                    path.string()));
  }
  return create(path, create_append_file(path));
}

Ledger Ledger::create(const std::filesystem::path& path, std::unique_ptr<AppendFile> file) {
  return {path, std::move(file)};
}

Ledger Ledger::open_at(const std::filesystem::path& path, int64_t position) {
  return open_at(path, position, open_append_file(path));
}

Ledger Ledger::open_at(const std::filesystem::path& path, int64_t position,
                       std::unique_ptr<AppendFile> file) {
  const LedgerScan scan = scan_ledger(path, position);
  if (!scan.has_begin_at || position > scan.whole_bytes) {
    const std::string collected =
        position < scan.collected_to
            ? fmt::format(
                  " (its records before byte {} were collected, as "
                  "--rollout-queue-online-gc does where no checkpoint needs them)",
                  scan.collected_to)
            : "";
    throw ConfigError(fmt::format(
        "{}: the checkpoint was written at byte {} of it, but only {} bytes are whole; the ledger "
        "is damaged or belongs to another run{}",
        path.string(), position, scan.whole_bytes, collected));
  }
  Ledger ledger(path, std::move(file));
  ledger.in_file_ = scan.sums_bytes - scan.collected_to;
  ledger.collected_to_ = scan.collected_to;
  LedgerReader reader(path);
  SegmentCursor cursor(segments_that_count(scan, position));
  for (auto line = reader.next(); line && line->begin < position; line = reader.next()) {
    if (!cursor.counts(line->begin)) continue;
    if (const auto* totals = std::get_if<LedgerTotals>(&*line->entry)) ledger.totals_ = *totals;
    if (const auto* sums = std::get_if<LedgerSums>(&*line->entry)) {
      ledger.state_ = LedgerState(*sums);
      ledger.totals_ = sums->totals;
    }
    const auto* record = std::get_if<LedgerRecord>(&*line->entry);
    if (record == nullptr) continue;
    if (const std::string problem = ledger.state_.violation(*record); !problem.empty())
      throw ConfigError(fmt::format("{}: {}", path.string(), problem));
    ledger.state_.add(*record);
  }
  // Also when nothing but damage follows: what is not whole never counted.
  ledger.cut_to(scan.whole_bytes);
  if (position < scan.whole_bytes) ledger.write_line(to_line(Rollback{position}));
  return ledger;
}

void Ledger::cut_to(int64_t size) {
  if (const Expected<void> cut = file_->truncate(size + in_file_); !cut)
    cannot(path_, "cut to its whole records", cut.error());
  size_ = size;
  may_have_torn_ = false;
}

void Ledger::write_line(const std::string& line) {
  // A part of a line must not stand before the next one.
  if (may_have_torn_) cut_to(size_);
  if (const Expected<void> appended = file_->append(line); !appended) {
    // If this fails as well, it is done before the next line, or by the next opening.
    may_have_torn_ = !file_->truncate(size_ + in_file_);
    cannot(path_, "written", appended.error());
  }
  size_ += static_cast<int64_t>(line.size());
}

void Ledger::append(const LedgerRecord& record) {
  const std::string problem = state_.violation(record);
  check(problem.empty(), "each prompt has one outcome: " + problem);
  write_line(to_line(record));
  state_.add(record);
}

void Ledger::append(const LedgerTotals& totals) {
  write_line(to_line(totals));
  totals_ = totals;
}

void Ledger::roll_back(int64_t position) {
  if (position == size_) return;
  *this = open_at(path_, position, std::move(file_));
}

int64_t Ledger::collect(int64_t position) {
  if (may_have_torn_) cut_to(size_);
  const int64_t freed = collect_ledger(path_, position);
  if (freed == 0) return 0;
  in_file_ -= freed;
  collected_to_ = position;
  file_ = open_append_file(path_);
  return freed;
}

int64_t Ledger::commit() {
  if (const Expected<void> synced = file_->sync(); !synced)
    cannot(path_, "made durable", synced.error());
  return size_;
}

}  // namespace slime::buffer
