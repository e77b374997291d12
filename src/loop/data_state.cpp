#include "loop/data_state.h"

#include <optional>

namespace slime::loop {

json::object data_state(int64_t step, buffer::DataSource& prompts, Fates& fates,
                        rollout::Rollout* rollout, UsersPrompts* users) {
  json::object state;
  rollout::Snapshot now;
  {
    std::optional<rollout::Rollout::Lease> lease;
    if (rollout != nullptr) {
      lease.emplace(*rollout);
      now = lease->snapshot();
    }
    if (users != nullptr) users->save(step);
    state["data_source"] = prompts.save(fates.in_flight());
    state["ledger"] = fates.commit(step, prompts, now);
  }
  buffer::add_open_groups(state["data_source"].as_object(), now.open_groups);
  return state;
}

}  // namespace slime::loop
