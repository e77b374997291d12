#include "buffer/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "buffer/ledger_record.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

[[noreturn]] void cannot(const std::filesystem::path& path, std::string_view action) {
  throw ConfigError(
      fmt::format("{}: cannot be {}: {}", path.string(), action, std::strerror(errno)));
}

int open_file(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
  if (descriptor < 0 && errno == EEXIST) {
    throw ConfigError(
        fmt::format("{}: there is a ledger of another run already; resume that run, or choose "
                    "another directory",
                    path.string()));
  }
  if (descriptor < 0) cannot(path, "opened");
  return descriptor;
}

/// So that a new file is still there after a power failure.
void sync_directory(const std::filesystem::path& file) {
  const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a file system that cannot do it
  ::fsync(descriptor);
  ::close(descriptor);
}

LedgerState replay(const std::vector<LedgerRecord>& records, const std::filesystem::path& path) {
  LedgerState state;
  for (const LedgerRecord& record : records) {
    if (const std::string problem = violation(state, record); !problem.empty()) {
      throw ConfigError(fmt::format("{}: {}", path.string(), problem));
    }
    state[record.ordinal] = record;
  }
  return state;
}

}  // namespace

LedgerSummary summarize(const LedgerState& state) {
  LedgerSummary summary;
  summary.dispatched = static_cast<int64_t>(state.size());
  for (const auto& [ordinal, record] : state) {
    summary.in_flight += is_final(record.fate) ? 0 : 1;
    summary.trained += record.fate == Fate::kTrained ? 1 : 0;
    summary.skipped += record.fate == Fate::kSkipped ? 1 : 0;
    summary.filtered += record.fate == Fate::kFiltered ? 1 : 0;
    summary.failed += record.fate == Fate::kFailed ? 1 : 0;
  }
  return summary;
}

Ledger Ledger::create(const std::filesystem::path& path) {
  const int descriptor = open_file(path, O_CREAT | O_EXCL);
  sync_directory(path);
  return {path, descriptor, 0, {}};
}

Ledger Ledger::open_at(const std::filesystem::path& path, int64_t position) {
  const LedgerLines file = read_ledger_lines(path);
  const bool begins_a_line =
      position == file.whole_bytes ||
      std::any_of(file.lines.begin(), file.lines.end(),
                  [position](const LedgerLine& line) { return line.begin == position; });
  if (!begins_a_line) {
    throw ConfigError(
        fmt::format("{}: the checkpoint was written at byte {} of it, but only {} bytes are whole; "
                    "the ledger is "
                    "damaged or belongs to another run",
                    path.string(), position, file.whole_bytes));
  }
  LedgerState state = replay(effective_records(file.lines, position), path);
  Ledger ledger(path, open_file(path, 0), file.whole_bytes, std::move(state));
  // Also when nothing but damage follows: what is not whole never counted.
  if (::ftruncate(ledger.descriptor_, file.whole_bytes) != 0)
    cannot(path, "cut to its whole records");
  if (position < file.whole_bytes) ledger.write_line(to_line(Rollback{position}));
  return ledger;
}

Ledger::Ledger(std::filesystem::path path, int descriptor, int64_t size, LedgerState state)
    : path_(std::move(path)), descriptor_(descriptor), size_(size), state_(std::move(state)) {}

Ledger::Ledger(Ledger&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      state_(std::move(other.state_)) {}

Ledger::~Ledger() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Ledger::write_line(const std::string& line) {
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(descriptor_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int reason = errno;
      // A part of a line must not stand before the next one. If this fails as well, the line is
      // torn and the next opening cuts it.
      [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, size_);
      errno = reason;
      cannot(path_, "written");
    }
    written += static_cast<std::size_t>(count);
  }
  size_ += static_cast<int64_t>(line.size());
}

void Ledger::append(const LedgerRecord& record) {
  const std::string problem = violation(state_, record);
  check(problem.empty(), "each prompt has one fate: " + problem);
  write_line(to_line(record));
  state_[record.ordinal] = record;
}

int64_t Ledger::commit() {
  if (::fsync(descriptor_) != 0) cannot(path_, "made durable");
  return size_;
}

std::set<int64_t> Ledger::in_flight() const {
  std::set<int64_t> ordinals;
  for (const auto& [ordinal, record] : state_) {
    if (!is_final(record.fate)) ordinals.insert(ordinals.end(), ordinal);
  }
  return ordinals;
}

}  // namespace slime::buffer
