// Snapshots of states, where layers keep one of each request.

#include <optional>

#include "engine/prefix_keys.h"
#include "engine/scheduler.h"

namespace slime::engine {

std::optional<StateId> Scheduler::take_state() {
  if (states_->num_free() == 0) tree_.evict_state();
  return states_->allocate();
}

void Scheduler::plan_snapshots(Request& request, int64_t num_known) const {
  request.snapshots_at.clear();
  if (states_ == nullptr || !config_.shares_prefixes) return;
  for (const int64_t position : {num_known, request.prompt_length - 1}) {
    const bool is_new = request.snapshots_at.empty() || position > request.snapshots_at.back();
    if (is_new && position > request.num_computed && position < request.prompt_length)
      request.snapshots_at.push_back(position);
  }
}

void Scheduler::advance_with_state(Request& request) {
  if (request.snapshots_at.empty() || request.snapshots_at.front() != request.num_computed) return;
  request.snapshots_at.erase(request.snapshots_at.begin());
  // The request holds its own state, so a snapshot takes another one's place or a free one.
  if (const auto state = take_state()) {
    copy_state_(request.state, *state);
    if (!tree_.insert(prefix_keys(request, request.num_computed), request.pages, *state))
      states_->release(*state);
  }
  if (request.snapshots_at.empty()) request.prompt_is_recorded = true;
}

}  // namespace slime::engine
