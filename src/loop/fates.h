#pragma once

/// What became of each prompt of a run, told to the ledger (buffer/ledger.h).

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "buffer/ledger.h"
#include "core/sample.h"

namespace slime::loop {

class Fates {
 public:
  /// `owns_prompts` false: another run gave the prompts out, and its ledger has their fates;
  /// nothing is noted here.
  Fates(std::unique_ptr<buffer::Ledger> ledger, bool owns_prompts)
      : ledger_(std::move(ledger)), owns_prompts_(owns_prompts) {}

  void dispatched(const Group& group);
  void partial(const Group& group);
  void filtered(const Group& group, const std::string& reason);
  void failed(const Group& group, const std::string& reason);
  /// What training made of the prompts of a step. From the thread of the loop: where the rollout's
  /// thread owns the ledger, `lend` borrows it.
  void trained(const std::vector<buffer::LedgerRecord>& records);
  using Lend = std::function<std::shared_ptr<void>()>;
  void lend_by(Lend lend) { lend_ = std::move(lend); }
  /// Any of them. The fate that a prompt has already is not noted again: prompts are given out
  /// once more after a restart.
  void note(const buffer::LedgerRecord& record);

  /// Ordinals without a final fate.
  std::set<int64_t> in_flight() const { return ledger_->in_flight(); }
  /// The position that a checkpoint stores; everything before it is on the disk.
  int64_t commit() { return ledger_->commit(); }

 private:
  std::unique_ptr<buffer::Ledger> ledger_;
  bool owns_prompts_;
  Lend lend_;  // empty: the ledger is the loop's between its steps
};

}  // namespace slime::loop
