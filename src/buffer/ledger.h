#pragma once

/// The ledger: what became of each prompt that was given out, and of each token that was sampled for
/// it (reliability contract R1, R2).
///
/// An append-only file with one writer, the loop. A prompt ordinal is dispatched, maybe partial,
/// scored, and ends as trained, skipped, filtered or failed, with how many tokens; no prompt ends
/// twice. Each checkpoint adds the totals of its moment. It stores the position that commit()
/// returned; a resumed run opens the ledger at it, and everything recorded after it is rolled back,
/// as the weights are.
///
/// A rollback is a record too (ledger_record.h has the lines): those between its position and it do
/// not count, but stay readable. A kill at any byte leaves at most one torn line at the end, which
/// the next opening cuts off. `slime ledger` proves that all of it adds up (ledger_audit.h).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "buffer/append_file.h"
#include "buffer/ledger_record.h"
#include "buffer/ledger_state.h"

namespace slime::buffer {

/// The writer. One per run, used by one thread at a time.
class Ledger {
 public:
  /// Creates a new ledger. Throws ConfigError when there is one at `path` already: a run that does
  /// not resume must not overwrite the record of another.
  static Ledger create(const std::filesystem::path& path);
  /// A new ledger in a file that is empty. Errors call it `path`.
  static Ledger create(const std::filesystem::path& path, std::unique_ptr<AppendFile> file);

  /// Opens at `position`, which commit() returned before the checkpoint was written: cuts a torn
  /// line off and rolls back what follows the position. Throws ConfigError when the file is
  /// missing, shorter than the position, or damaged before it.
  static Ledger open_at(const std::filesystem::path& path, int64_t position);
  /// The same, written through `file`, which is that at `path`.
  static Ledger open_at(const std::filesystem::path& path, int64_t position,
                        std::unique_ptr<AppendFile> file);

  /// Records a outcome. It survives a kill of this process, a power failure only after commit().
  /// Throws BugError for a outcome that cannot follow (a final one twice, a prompt that was never
  /// dispatched), ConfigError when the disk refuses; nothing is recorded then, and append may be
  /// called again.
  void append(const LedgerRecord& record);
  /// The totals of a checkpoint; commit() follows.
  void append(const LedgerTotals& totals);

  /// Makes all records durable (fsync). Returns the position that a checkpoint stores.
  int64_t commit();

  /// Records before `position`, which is that of the oldest checkpoint, become one line with their
  /// sums (collect_ledger). Positions stay what they are. Returns the bytes that this frees. Only of a
  /// ledger that was opened by its path.
  int64_t collect(int64_t position);
  /// Where records begin that are there one by one.
  int64_t collected_to() const { return collected_to_; }

  /// Where the next record begins.
  int64_t size() const { return size_; }
  /// Rolls back what follows `position`, which commit() or size() gave this writer.
  void roll_back(int64_t position);

  LedgerSummary summary() const { return state_.summary(); }
  /// Ordinals without a final outcome: at a restart these are given out again (DataSource::save).
  std::set<int64_t> in_flight() const { return state_.in_flight(); }
  const LedgerState& state() const { return state_; }
  /// The latest that count.
  const std::optional<LedgerTotals>& totals() const { return totals_; }

 private:
  Ledger(std::filesystem::path path, std::unique_ptr<AppendFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  void cut_to(int64_t size);
  void write_line(const std::string& line);

  std::filesystem::path path_;
  std::unique_ptr<AppendFile> file_;
  int64_t size_ = 0;  // bytes of whole records, collected ones with them
  int64_t collected_to_ = 0;
  int64_t in_file_ = 0;         // where a byte stands in the file, less its position
  bool may_have_torn_ = false;  // a part of a line stands behind them
  LedgerState state_;
  std::optional<LedgerTotals> totals_;
};

}  // namespace slime::buffer
