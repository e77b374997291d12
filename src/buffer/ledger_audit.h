#pragma once

/// Audit of a ledger file, which it does not change: the proof that nothing was lost, for `slime ledger`.
///
/// At every checkpoint whose totals count, for tokens
///
///   generated = trained + skipped + filtered + failed + discarded + pending
///
/// where generated was counted as tokens came from the engines and the others as prompts ended; and
/// for prompts: every ordinal that was given out has exactly one outcome or is pending, and those that
/// are pending were all in the checkpoint. What stands behind the last checkpoint is told apart: a
/// restart rolls it back.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "buffer/ledger_record.h"
#include "buffer/ledger_state.h"

namespace slime::buffer {

/// A checkpoint's own counts and what the records before it say.
struct LedgerBalance {
  int64_t position = 0;  // that the checkpoint stores
  LedgerTotals totals;
  LedgerSummary prompts;
  LedgerTokens tokens;
  int64_t open_discarded = 0;  // tokens thrown away for prompts that are not final

  int64_t discarded_tokens() const { return tokens.discarded + totals.discarded; }
  int64_t accounted_tokens() const { return tokens.sum() + totals.pending + totals.discarded; }
};

struct LedgerAudit {
  /// At the checkpoint that was asked for, or the last that counts. Nothing: none has totals.
  std::optional<LedgerBalance> checkpoint;
  LedgerSummary prompts;  // at the end of the file
  LedgerTokens tokens;
  int64_t num_checkpoints = 0;  // with totals, that count
  int64_t num_records = 0;      // whole ones, rolled back ones and rollbacks included
  int64_t num_rollbacks = 0;    // restarts
  int64_t num_rolled_back = 0;  // records that do not count any more
  int64_t collected_to = 0;     // byte before which there are only sums (--rollout-queue-online-gc)
  int64_t num_behind = 0;       // records that count behind `checkpoint`
  int64_t torn_bytes = 0;       // of unfinished lines at the end: the next start cuts them
  int64_t torn_begin = 0;
  std::vector<std::string> problems;  // the first kMostProblems, in words and with their lines
  int64_t num_problems = 0;

  static constexpr std::size_t kMostProblems = 20;
};

/// `checkpoint`: the position that the newest checkpoint stores, when it is known. Throws
/// ConfigError when the file cannot be read.
LedgerAudit audit_ledger(const std::filesystem::path& path,
                         std::optional<int64_t> checkpoint = std::nullopt);

/// One record of an ordinal and where it stands.
struct LedgerStep {
  int64_t line = 0;  // counted from 1
  int64_t position = 0;
  LedgerRecord record;
  bool counts = true;  // false: it was rolled back
};

/// All of them, in the order of the file.
std::vector<LedgerStep> path_of(const std::filesystem::path& path, int64_t ordinal);

}  // namespace slime::buffer
