#pragma once

/// Prompts between buffer and rollout, each with its outcome in the ledger.

#include <string>

#include "buffer/data_source.h"
#include "loop/outcome_log.h"
#include "rollout/prompt_supply.h"

namespace slime::loop {

/// Groups come from the buffer and go back there; the ledger is told.
class LedgerPrompts : public rollout::PromptSupply {
 public:
  /// `choose`, if any, says which of the waiting groups come first. References outlive the object.
  LedgerPrompts(buffer::DataSource& prompts, OutcomeLog& outcomes,
                buffer::ChooseWaitingFn choose = nullptr);

  std::vector<Group> take(int64_t count) override;
  void give_back(std::vector<Group> groups) override;
  bool is_replayed(const Group& group) const override;
  void discarded(int64_t ordinal, int64_t num_tokens) override;
  /// Filtered, or failed for the reason of its first sample that has failed.
  void dropped(const Group& group, const std::string& reason) override;

 private:
  buffer::DataSource& prompts_;
  OutcomeLog& outcomes_;
  const buffer::ChooseWaitingFn choose_;
};

}  // namespace slime::loop
