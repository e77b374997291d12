#pragma once

/// Log of the outcomes of a run's prompts, written to the ledger (buffer/ledger.h).

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffer/data_source.h"
#include "buffer/ledger.h"
#include "core/sample.h"
#include "rollout/rollout.h"

namespace slime::loop {

class OutcomeLog {
 public:
  /// `owns_prompts` false: another run gave the prompts out, and its ledger has their outcomes;
  /// nothing is noted here.
  OutcomeLog(std::unique_ptr<buffer::Ledger> ledger, bool owns_prompts)
      : ledger_(std::move(ledger)), owns_prompts_(owns_prompts) {}

  /// The run begins with these prompts waiting. A ledger that has no totals of them (they are
  /// another run's, or of before tokens were counted) takes them over, once something is noted.
  /// `sampled`: groups that wait for training instead.
  void begin_with(const buffer::DataSource& prompts, const std::vector<Group>& sampled = {});

  void dispatched(const Group& group);
  void partial(int64_t ordinal);
  void filtered(const Group& group, const std::string& reason);
  void failed(const Group& group, const std::string& reason);
  /// Tokens that somebody else than the rollout drew.
  void sampled(int64_t num_tokens) { generated_before_ += num_tokens; }
  /// Tokens that were sampled for it are thrown away.
  void discarded(int64_t ordinal, int64_t num_tokens) { discarded_[ordinal] += num_tokens; }
  /// What training made of the prompts of a step. From the thread of the loop: where the rollout's
  /// thread owns the ledger, `lock_ledger` locks it.
  void trained(const std::vector<buffer::LedgerRecord>& records);
  using LockLedger = std::function<std::shared_ptr<void>()>;
  void lock_by(LockLedger lock) { lock_ledger_ = std::move(lock); }
  /// Any of them, with the tokens that were discarded for the prompt. The outcome that a prompt has already is not noted again: prompts are given out
  /// once more after a restart.
  void note(buffer::LedgerRecord record);

  /// How it stands between two steps.
  struct Mark {
    int64_t position = 0;
    std::unordered_map<int64_t, int64_t> discarded;
    int64_t generated_before = 0;
  };
  Mark mark() const { return {ledger_->size(), discarded_, generated_before_}; }
  /// What was noted since is rolled back: the step came to no end.
  void roll_back(const Mark& mark);

  /// What lies before `position` of the ledger is collected (Ledger::collect) where it is more than
  /// `least` bytes and more than what lies behind. From the thread of the loop, as trained().
  void collect(int64_t position, int64_t least);

  /// Whether a prompt was given out before.
  bool knows(int64_t ordinal);
  /// Ordinals without a final outcome.
  std::set<int64_t> in_flight() const { return ledger_->in_flight(); }
  /// Notes the totals of the checkpoint after step `step`: of `prompts` and what the rollout has
  /// `under_way`. Returns the position that the checkpoint stores; everything before it is on the
  /// disk.
  int64_t commit(int64_t step, const buffer::DataSource& prompts,
                 const rollout::Snapshot& under_way);

 private:
  void take_over();

  std::unique_ptr<buffer::Ledger> ledger_;
  bool owns_prompts_;
  std::unordered_map<int64_t, int64_t> discarded_;  // by ordinal: tokens that are not noted yet
  int64_t generated_before_ = 0;  // tokens, by the processes before this one and by functions
  std::optional<buffer::LedgerTotals> taken_over_;  // to be noted first
  std::vector<int64_t> open_before_;                // ordinals that wait with them
  LockLedger lock_ledger_;  // empty: the ledger is the loop's between its steps
};

}  // namespace slime::loop
