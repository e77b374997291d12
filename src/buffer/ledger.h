#pragma once

/// The ledger: what became of each prompt that was given out (reliability contract R1, R2).
///
/// An append-only file with one writer, the loop. A prompt ordinal is dispatched, maybe partial,
/// scored, and ends as trained, skipped, filtered or failed; no prompt ends twice. A checkpoint
/// stores the position that commit() returned; a resumed run opens the ledger at it, and everything
/// recorded after it is rolled back, as the weights are.
///
/// One record is one line: the CRC-32C of the JSON text, a blank, the JSON text.
///
///   5b2c11f0 {"ordinal":17,"fate":"dispatched"}
///   0d41b2aa {"ordinal":17,"fate":"trained","step":3}
///   77d0c9e4 {"rollback_to":61}
///
/// A rollback is a record too: the lines between position 61 and it do not count, but stay
/// readable. A kill at any byte leaves at most one torn line at the end, which the next opening
/// cuts off.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace slime::buffer {

/// kSkipped: it was in the batch, but none of its samples changed the weights, because every update
/// that they were part of was left out (gradients that were not finite).
enum class Fate { kDispatched, kPartial, kScored, kTrained, kSkipped, kFiltered, kFailed };

/// "dispatched", "partial", "scored", "trained", "skipped", "filtered", "failed".
std::string_view to_string(Fate fate);

inline bool is_final(Fate fate) {
  return fate == Fate::kTrained || fate == Fate::kSkipped || fate == Fate::kFiltered ||
         fate == Fate::kFailed;
}

struct LedgerRecord {
  int64_t ordinal = 0;  // of the prompt
  Fate fate = Fate::kDispatched;
  int64_t step = -1;  // kTrained, kSkipped: the rollout step
  /// kSkipped, kFiltered, kFailed; of kTrained only when an update with a part of the samples was
  /// skipped.
  std::string reason;
};

/// Prompts by where they are now. dispatched = in_flight + trained + skipped + filtered + failed.
struct LedgerSummary {
  int64_t dispatched = 0;
  int64_t in_flight = 0;
  int64_t trained = 0;
  int64_t skipped = 0;
  int64_t filtered = 0;
  int64_t failed = 0;
  bool operator==(const LedgerSummary&) const = default;
};

/// The latest record of each ordinal.
using LedgerState = std::map<int64_t, LedgerRecord>;

LedgerSummary summarize(const LedgerState& state);

/// The writer. One per run, used by one thread at a time.
class Ledger {
 public:
  /// Creates a new ledger. Throws ConfigError when there is one at `path` already: a run that does
  /// not resume must not overwrite the record of another.
  static Ledger create(const std::filesystem::path& path);

  /// Opens at `position`, which commit() returned before the checkpoint was written: cuts a torn
  /// line off and rolls back what follows the position. Throws ConfigError when the file is
  /// missing, shorter than the position, or damaged before it.
  static Ledger open_at(const std::filesystem::path& path, int64_t position);

  Ledger(Ledger&& other) noexcept;
  Ledger& operator=(Ledger&&) = delete;
  ~Ledger();

  /// Records a fate. It survives a kill of this process, a power failure only after commit().
  /// Throws BugError for a fate that cannot follow (a final one twice, a prompt that was never
  /// dispatched), ConfigError when the disk refuses; nothing is recorded then, and append may be
  /// called again.
  void append(const LedgerRecord& record);

  /// Makes all records durable (fsync). Returns the position that a checkpoint stores.
  int64_t commit();

  LedgerSummary summary() const { return summarize(state_); }
  /// Ordinals without a final fate: at a restart these are given out again (DataSource::save).
  std::set<int64_t> in_flight() const;
  const LedgerState& state() const { return state_; }

 private:
  Ledger(std::filesystem::path path, int descriptor, int64_t size, LedgerState state);

  void write_line(const std::string& json);

  std::filesystem::path path_;
  int descriptor_;
  int64_t size_;  // bytes of whole records
  LedgerState state_;
};

}  // namespace slime::buffer
