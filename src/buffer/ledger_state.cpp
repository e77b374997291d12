#include "buffer/ledger_state.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace slime::buffer {
namespace {

/// The counts of prompts and of tokens that a final outcome adds to.
std::pair<int64_t&, int64_t&> counts_of(Outcome outcome, LedgerSummary& prompts,
                                        LedgerTokens& tokens) {
  switch (outcome) {
    case Outcome::kTrained:
      return {prompts.trained, tokens.trained};
    case Outcome::kSkipped:
      return {prompts.skipped, tokens.skipped};
    case Outcome::kFiltered:
      return {prompts.filtered, tokens.filtered};
    case Outcome::kFailed:
      return {prompts.failed, tokens.failed};
    default:
      throw BugError("only a final outcome is counted");
  }
}

}  // namespace

LedgerState::LedgerState(const LedgerSums& sums)
    : ended_{.trained = sums.prompts[0],
             .skipped = sums.prompts[1],
             .filtered = sums.prompts[2],
             .failed = sums.prompts[3]},
      tokens_{.trained = sums.tokens[0],
              .skipped = sums.tokens[1],
              .filtered = sums.tokens[2],
              .failed = sums.tokens[3],
              .discarded = sums.discarded,
              .num_not_counted = sums.num_not_counted} {
  for (const auto& [first, last] : sums.ended) final_.append_interval(first, last);
  for (const LedgerRecord& record : sums.open) {
    open_[record.ordinal] = {record.outcome, record.discarded};
    open_discarded_ += record.discarded;
  }
}

LedgerSums LedgerState::sums() const {
  LedgerSums sums{.prompts = {ended_.trained, ended_.skipped, ended_.filtered, ended_.failed},
                  .tokens = {tokens_.trained, tokens_.skipped, tokens_.filtered, tokens_.failed},
                  .discarded = tokens_.discarded,
                  .num_not_counted = tokens_.num_not_counted};
  sums.ended.assign(final_.intervals().begin(), final_.intervals().end());
  for (const int64_t ordinal : in_flight()) {
    const Open& open = open_.at(ordinal);
    sums.open.push_back({.ordinal = ordinal, .outcome = open.outcome, .discarded = open.discarded});
  }
  return sums;
}

std::string LedgerState::violation(const LedgerRecord& record) const {
  const auto what = [&record] {
    return fmt::format("prompt {}: {}{}", record.ordinal, to_string(record.outcome),
                       record.step >= 0 ? fmt::format(" at step {}", record.step) : "");
  };
  if (final_.contains(record.ordinal)) return what() + " after it had a final outcome";
  if (record.outcome == Outcome::kDispatched) return {};
  const auto open = open_.find(record.ordinal);
  if (open == open_.end()) return what() + " without being dispatched";
  if (record.discarded < open->second.discarded) {
    return what() + fmt::format(" with {} discarded tokens, after it had {}", record.discarded,
                                open->second.discarded);
  }
  return {};
}

void LedgerState::add(const LedgerRecord& record) {
  if (!is_final(record.outcome)) {
    if (final_.contains(record.ordinal)) return;
    Open& open = open_[record.ordinal];
    open.outcome = record.outcome;
    if (record.outcome == Outcome::kDispatched) return;
    open_discarded_ += record.discarded - open.discarded;
    open.discarded = record.discarded;
    return;
  }
  open_discarded_ -= open_discarded(record.ordinal);
  open_.erase(record.ordinal);
  const bool is_first = final_.insert(record.ordinal);
  const auto [prompts, tokens] = counts_of(record.outcome, ended_, tokens_);
  prompts += is_first ? 1 : 0;
  tokens += record.tokens.value_or(0);
  tokens_.discarded += record.discarded;
  tokens_.num_not_counted += record.tokens ? 0 : 1;
}

LedgerSummary LedgerState::summary() const {
  LedgerSummary summary = ended_;
  summary.in_flight = static_cast<int64_t>(open_.size());
  summary.dispatched = summary.in_flight + final_.size();
  return summary;
}

std::set<int64_t> LedgerState::in_flight() const {
  std::set<int64_t> ordinals;
  for (const auto& [ordinal, open] : open_) ordinals.insert(ordinal);
  return ordinals;
}

std::optional<Outcome> LedgerState::open_outcome(int64_t ordinal) const {
  const auto found = open_.find(ordinal);
  return found == open_.end() ? std::nullopt : std::optional(found->second.outcome);
}

int64_t LedgerState::open_discarded(int64_t ordinal) const {
  const auto found = open_.find(ordinal);
  return found == open_.end() ? 0 : found->second.discarded;
}

}  // namespace slime::buffer
