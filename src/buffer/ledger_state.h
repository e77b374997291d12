#pragma once

/// State of a ledger after its records so far: open prompts, outcomes of the ended ones, and token
/// counts. Final prompts are kept as intervals, not one by one.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "buffer/ledger_record.h"
#include "buffer/ordinal_set.h"

namespace slime::buffer {

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

/// Response tokens of prompts that are final.
struct LedgerTokens {
  int64_t trained = 0;
  int64_t skipped = 0;
  int64_t filtered = 0;
  int64_t failed = 0;
  int64_t discarded = 0;
  int64_t num_not_counted = 0;  // prompts of before tokens were counted
  int64_t sum() const { return trained + skipped + filtered + failed + discarded; }
  bool operator==(const LedgerTokens&) const = default;
};

class LedgerState {
 public:
  LedgerState() = default;
  explicit LedgerState(const LedgerSums& sums);
  /// Without position, totals and what was taken over.
  LedgerSums sums() const;

  /// Why `record` cannot follow; empty when it can.
  std::string violation(const LedgerRecord& record) const;
  /// Also of a record that cannot follow, so that an audit goes on behind it.
  void add(const LedgerRecord& record);

  LedgerSummary summary() const;
  const LedgerTokens& tokens() const { return tokens_; }
  /// Ordinals without a final outcome.
  std::set<int64_t> in_flight() const;
  bool knows(int64_t ordinal) const { return open_.contains(ordinal) || final_.contains(ordinal); }
  /// The latest of a prompt that is not final; nothing for others.
  std::optional<Outcome> open_outcome(int64_t ordinal) const;
  /// Tokens that were thrown away for a prompt that is not final; 0 for others. Or for all of them.
  int64_t open_discarded(int64_t ordinal) const;
  int64_t open_discarded() const { return open_discarded_; }

 private:
  struct Open {
    Outcome outcome = Outcome::kDispatched;  // the latest
    int64_t discarded = 0;                   // tokens
  };

  std::unordered_map<int64_t, Open> open_;
  int64_t open_discarded_ = 0;  // sum over open_
  OrdinalSet final_;
  LedgerSummary ended_;  // its counts of final outcomes
  LedgerTokens tokens_;
};

}  // namespace slime::buffer
