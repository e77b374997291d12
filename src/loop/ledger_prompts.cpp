#include "loop/ledger_prompts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/sampled_tokens.h"

namespace slime::loop {

LedgerPrompts::LedgerPrompts(buffer::DataSource& prompts, OutcomeLog& outcomes,
                             buffer::ChooseWaitingFn choose)
    : prompts_(prompts), outcomes_(outcomes), choose_(std::move(choose)) {}

std::vector<Group> LedgerPrompts::take(int64_t count) {
  std::vector<Group> left_out;
  std::vector<Group> groups =
      choose_ ? prompts_.take(count, choose_, left_out) : prompts_.take(count);
  for (const Group& group : left_out) outcomes_.filtered(group, "left out by the buffer filter");
  try {
    for (const Group& group : groups) {
      // A new group with tokens was generated elsewhere: they count when they come.
      if (!outcomes_.knows(group.ordinal)) outcomes_.sampled(num_sampled_tokens(group));
      outcomes_.dispatched(group);
    }
  } catch (...) {
    prompts_.add(std::move(groups));
    throw;
  }
  return groups;
}

void LedgerPrompts::give_back(std::vector<Group> groups) {
  std::vector<int64_t> ordinals;
  for (const Group& group : groups) ordinals.push_back(group.ordinal);
  prompts_.add(std::move(groups));  // first: what the ledger does not take is not lost
  for (const int64_t ordinal : ordinals) outcomes_.partial(ordinal);
}

bool LedgerPrompts::is_replayed(const Group& group) const {
  return prompts_.gave_finished(group.ordinal);
}

void LedgerPrompts::discarded(int64_t ordinal, int64_t num_tokens) {
  outcomes_.discarded(ordinal, num_tokens);
}

void LedgerPrompts::dropped(const Group& group, const std::string& reason) {
  if (reason != "failed") {
    outcomes_.filtered(group, reason);
    return;
  }
  const auto failed = std::ranges::find(group.samples, Status::kFailed, &Sample::status);
  outcomes_.failed(group, failed == group.samples.end() ? reason : failed->failure);
}

}  // namespace slime::loop
