#include "loop/prompt_fates.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/drawn_tokens.h"

namespace slime::loop {

void take_prompts_from(rollout::RolloutHooks& hooks, buffer::DataSource& prompts, Fates& fates,
                       buffer::ChooseWaitingFn choose) {
  hooks.take_groups = [&prompts, &fates, choose = std::move(choose)](int64_t count) {
    std::vector<Group> left_out;
    std::vector<Group> groups =
        choose ? prompts.take(count, choose, left_out) : prompts.take(count);
    for (const Group& group : left_out) fates.filtered(group, "left out by the buffer filter");
    try {
      for (const Group& group : groups) {
        // What is new and has tokens was drawn elsewhere: they count when they come.
        if (!fates.knows(group.ordinal)) fates.drawn(num_drawn_tokens(group));
        fates.dispatched(group);
      }
    } catch (...) {
      prompts.add(std::move(groups));
      throw;
    }
    return groups;
  };
  hooks.give_back = [&prompts, &fates](std::vector<Group> groups) {
    std::vector<int64_t> ordinals;
    for (const Group& group : groups) ordinals.push_back(group.ordinal);
    prompts.add(std::move(groups));  // first: what the ledger does not take is not lost
    for (const int64_t ordinal : ordinals) fates.partial(ordinal);
  };
  hooks.is_replayed = [&prompts](const Group& group) {
    return prompts.gave_finished(group.ordinal);
  };
  hooks.on_discard = [&fates](int64_t ordinal, int64_t num_tokens) {
    fates.discarded(ordinal, num_tokens);
  };
}

void note_drop(Fates& fates, const Group& group, const std::string& reason) {
  if (reason != "failed") {
    fates.filtered(group, reason);
    return;
  }
  const auto failed = std::ranges::find(group.samples, Status::kFailed, &Sample::status);
  fates.failed(group, failed == group.samples.end() ? reason : failed->failure);
}

}  // namespace slime::loop
