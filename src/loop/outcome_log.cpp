#include "loop/outcome_log.h"

#include <algorithm>
#include <utility>

#include "core/sampled_tokens.h"

namespace slime::loop {
namespace {

void add_open(buffer::LedgerTotals& totals, const Group& group) {
  ++totals.open_prompts;
  totals.pending += num_sampled_tokens(group);
}

buffer::LedgerRecord end_of(const Group& group, buffer::Outcome outcome,
                            const std::string& reason) {
  return {.ordinal = group.ordinal,
          .outcome = outcome,
          .reason = reason,
          .tokens = num_sampled_tokens(group)};
}

}  // namespace

void OutcomeLog::begin_with(const buffer::DataSource& prompts, const std::vector<Group>& sampled) {
  if (!owns_prompts_) return;
  if (ledger_->totals()) {
    generated_before_ = ledger_->totals()->generated;
    return;
  }
  if (prompts.next_group() == 0) return;
  buffer::LedgerTotals totals{.next_ordinal = prompts.next_group()};
  const auto take_over = [&](const Group& group) {
    add_open(totals, group);
    open_before_.push_back(group.ordinal);
  };
  for (const Group& group : prompts.waiting()) take_over(group);
  for (const Group& group : sampled) take_over(group);
  totals.generated = totals.pending;
  generated_before_ = totals.generated;
  taken_over_ = totals;
}

void OutcomeLog::take_over() {
  if (!taken_over_) return;
  for (const int64_t ordinal : open_before_) {
    if (!ledger_->state().knows(ordinal))
      ledger_->append({.ordinal = ordinal, .outcome = buffer::Outcome::kDispatched});
  }
  ledger_->append(*taken_over_);
  taken_over_.reset();
}

void OutcomeLog::dispatched(const Group& group) {
  note({.ordinal = group.ordinal, .outcome = buffer::Outcome::kDispatched});
}

void OutcomeLog::partial(int64_t ordinal) {
  note({.ordinal = ordinal, .outcome = buffer::Outcome::kPartial});
}

void OutcomeLog::filtered(const Group& group, const std::string& reason) {
  note(end_of(group, buffer::Outcome::kFiltered, reason));
}

void OutcomeLog::failed(const Group& group, const std::string& reason) {
  note(end_of(group, buffer::Outcome::kFailed, reason));
}

void OutcomeLog::trained(const std::vector<buffer::LedgerRecord>& records) {
  const std::shared_ptr<void> lock = lock_ledger_ ? lock_ledger_() : nullptr;
  for (const buffer::LedgerRecord& record : records) note(record);
}

void OutcomeLog::note(buffer::LedgerRecord record) {
  if (!owns_prompts_) return;
  take_over();
  const auto unnoted = discarded_.find(record.ordinal);
  const bool is_dispatch = record.outcome == buffer::Outcome::kDispatched;
  const bool has_discarded = !is_dispatch && unnoted != discarded_.end();
  if (ledger_->state().open_outcome(record.ordinal) == record.outcome && !has_discarded) return;
  if (!is_dispatch) {
    record.discarded =
        ledger_->state().open_discarded(record.ordinal) + (has_discarded ? unnoted->second : 0);
  }
  ledger_->append(record);  // throws: all is as it was
  if (has_discarded) discarded_.erase(unnoted);
}

void OutcomeLog::collect(int64_t position, int64_t least) {
  const std::shared_ptr<void> lock = lock_ledger_ ? lock_ledger_() : nullptr;
  // Over a run's time twice its bytes are written at most.
  const int64_t kept = ledger_->size() - position;
  if (position - ledger_->collected_to() > std::max(least, kept)) ledger_->collect(position);
}

bool OutcomeLog::knows(int64_t ordinal) {
  take_over();
  return ledger_->state().knows(ordinal);
}

void OutcomeLog::roll_back(const Mark& mark) {
  if (!owns_prompts_) return;
  ledger_->roll_back(mark.position);
  discarded_ = mark.discarded;
  generated_before_ = mark.generated_before;
}

int64_t OutcomeLog::commit(int64_t step, const buffer::DataSource& prompts,
                           const rollout::Snapshot& under_way) {
  if (owns_prompts_) {
    take_over();
    // What the disk did not take when it happened.
    for (const Group& group : prompts.waiting()) {
      if (!ledger_->state().knows(group.ordinal)) dispatched(group);
    }
    while (!discarded_.empty())
      note({.ordinal = discarded_.begin()->first, .outcome = buffer::Outcome::kPartial});
    buffer::LedgerTotals totals{.step = step,
                                .next_ordinal = prompts.next_group(),
                                .generated = generated_before_ + under_way.generated_tokens,
                                .discarded = ledger_->state().open_discarded()};
    for (const Group& group : prompts.waiting()) add_open(totals, group);
    for (const Group& group : under_way.open_groups) add_open(totals, group);
    ledger_->append(totals);
  }
  return ledger_->commit();
}

}  // namespace slime::loop
