#include "loop/prompt_fates.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/drawn_tokens.h"

namespace slime::loop {

LedgerPrompts::LedgerPrompts(buffer::DataSource& prompts, Fates& fates,
                             buffer::ChooseWaitingFn choose)
    : prompts_(prompts), fates_(fates), choose_(std::move(choose)) {}

std::vector<Group> LedgerPrompts::take(int64_t count) {
  std::vector<Group> left_out;
  std::vector<Group> groups =
      choose_ ? prompts_.take(count, choose_, left_out) : prompts_.take(count);
  for (const Group& group : left_out) fates_.filtered(group, "left out by the buffer filter");
  try {
    for (const Group& group : groups) {
      // A new group with tokens was generated elsewhere: they count when they come.
      if (!fates_.knows(group.ordinal)) fates_.drawn(num_drawn_tokens(group));
      fates_.dispatched(group);
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
  for (const int64_t ordinal : ordinals) fates_.partial(ordinal);
}

bool LedgerPrompts::is_replayed(const Group& group) const {
  return prompts_.gave_finished(group.ordinal);
}

void LedgerPrompts::discarded(int64_t ordinal, int64_t num_tokens) {
  fates_.discarded(ordinal, num_tokens);
}

void LedgerPrompts::dropped(const Group& group, const std::string& reason) {
  if (reason != "failed") {
    fates_.filtered(group, reason);
    return;
  }
  const auto failed = std::ranges::find(group.samples, Status::kFailed, &Sample::status);
  fates_.failed(group, failed == group.samples.end() ? reason : failed->failure);
}

}  // namespace slime::loop
