#include "loop/data_state.h"

#include <optional>
#include <set>

namespace slime::loop {
namespace {

json::array ordinals_of(const std::vector<Group>& groups) {
  json::array ordinals;
  for (const Group& group : groups) ordinals.push_back(group.ordinal);
  return ordinals;
}

}  // namespace

json::object data_state(int64_t step, buffer::DataSource& prompts, Fates& fates,
                        rollout::Rollout* rollout, const std::vector<Group>& abandoned,
                        const FunctionSource* function, plugin::UsersPrompts* users) {
  json::object state;
  rollout::Snapshot now;
  std::vector<Group> open;  // to be given out again
  {
    std::optional<rollout::Rollout::Lease> lease;
    if (rollout != nullptr) {
      lease.emplace(*rollout);
      now = lease->snapshot();
    }
    std::optional<FunctionSource::Lease> of_function;
    std::vector<Group> drawn;
    if (function != nullptr) {
      of_function.emplace(*function);
      open = of_function->taken();
      if (const std::optional<DrawnStep>& step_ahead = of_function->drawn()) {
        state["drawn_step"] = to_json(*step_ahead);
        drawn = step_ahead->collected.groups;
      }
    }
    open.insert(open.end(), abandoned.begin(), abandoned.end());
    open.insert(open.end(), now.open_groups.begin(), now.open_groups.end());
    if (users != nullptr) users->save(step);
    std::set<int64_t> to_come = fates.in_flight();  // prompts that are given out again
    for (const Group& group : drawn) to_come.erase(group.ordinal);
    state["data_source"] = prompts.save(to_come);
    now.open_groups = open;
    now.open_groups.insert(now.open_groups.end(), drawn.begin(), drawn.end());
    state["ledger"] = fates.commit(step, prompts, now);
  }
  if (users != nullptr) state["not_given_back"] = ordinals_of(open);
  buffer::add_open_groups(state["data_source"].as_object(), open);
  return state;
}

json::object data_state(int64_t step, StepBoundary boundary, Fates& fates) {
  fates.roll_back(boundary.fates);
  json::object state;
  state["data_source"] = boundary.prompts.save(fates.in_flight());
  state["ledger"] = fates.commit(step, boundary.prompts, boundary.rollout);
  return state;
}

}  // namespace slime::loop
