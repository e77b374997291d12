#pragma once

/// The lines of a ledger: what they say and how they are written.
///
/// One record is one line: the CRC-32C of the JSON text, a blank, the JSON text.
///
///   5b2c11f0 {"ordinal":17,"fate":"dispatched"}
///   0d41b2aa {"ordinal":17,"fate":"trained","step":3,"tokens":812,"discarded":96}
///   9e03c7d1 {"checkpoint":3,"next_ordinal":24,"open_prompts":8,"generated":20011,"pending":3120,"discarded":40}
///   77d0c9e4 {"rollback_to":61}
///   1f00ab34 {"collected_to":8201,"ended":[[0,511]],"open":[[512,"partial",96]], ...}

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace slime::buffer {

/// kSkipped: it was in the batch, but none of its samples changed the weights, because every update
/// that they were part of was left out (gradients that were not finite).
enum class Outcome { kDispatched, kPartial, kScored, kTrained, kSkipped, kFiltered, kFailed };

/// "dispatched", "partial", "scored", "trained", "skipped", "filtered", "failed".
std::string_view to_string(Outcome outcome);

inline bool is_final(Outcome outcome) {
  return outcome == Outcome::kTrained || outcome == Outcome::kSkipped ||
         outcome == Outcome::kFiltered || outcome == Outcome::kFailed;
}

struct LedgerRecord {
  int64_t ordinal = 0;  // of the prompt
  Outcome outcome = Outcome::kDispatched;
  int64_t step = -1;  // kTrained, kSkipped: the rollout step
  /// kSkipped, kFiltered, kFailed; of kTrained only when an update with a part of the samples was
  /// skipped.
  std::string reason = {};
  /// Of a final outcome: response tokens that its group ended with. Unset in ledgers of before they
  /// were counted.
  std::optional<int64_t> tokens = {};
  /// Not of kDispatched: tokens that were sampled for the prompt and thrown away, until now.
  int64_t discarded = 0;
};

/// All of the run until here. A checkpoint that is written behind it stores the position of the
/// next byte.
struct LedgerTotals {
  int64_t step = -1;         // of the checkpoint; -1: what a ledger begins with that takes over
  int64_t next_ordinal = 0;  // of the prompt that is given out next
  int64_t open_prompts = 0;  // begun or handed back, without a final outcome
  int64_t generated = 0;     // response tokens that came from the engines
  int64_t pending = 0;       // of those: what the open prompts have
  int64_t discarded = 0;     // of those: sampled for open prompts and thrown away already
  bool operator==(const LedgerTotals&) const = default;
};

/// What follows byte `position` up to this record does not count.
struct Rollback {
  int64_t position = 0;
};

/// The sums of all lines that counted before byte `position` of the ledger, which were collected: the
/// first line of such a file. Positions go on to count from the first byte that was ever written.
struct LedgerSums {
  int64_t position = 0;
  std::vector<std::pair<int64_t, int64_t>>
      ended;                           // first and last of intervals of ordinals, ascending
  std::vector<LedgerRecord> open;      // the latest outcome of each that is not final
  std::array<int64_t, 4> prompts{};    // trained, skipped, filtered, failed
  std::array<int64_t, 4> tokens{};     // the same
  int64_t discarded = 0;               // tokens of ended prompts
  int64_t num_not_counted = 0;         // ended prompts of before tokens were counted
  int64_t num_before = 0;              // prompts that were taken over
  std::optional<LedgerTotals> totals;  // the latest
};

using LedgerEntry = std::variant<LedgerRecord, LedgerTotals, Rollback, LedgerSums>;

/// With its checksum and the end of the line.
std::string to_line(const LedgerEntry& entry);

/// `line` is without its end. Nothing for one that this program did not write.
std::optional<LedgerEntry> parse_ledger_line(std::string_view line);

}  // namespace slime::buffer
