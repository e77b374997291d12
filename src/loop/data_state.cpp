#include "loop/data_state.h"

#include <optional>
#include <set>

namespace slime::loop {

json::object data_state(int64_t step, buffer::DataSource& prompts, Fates& fates, OpenGroups open) {
  json::object state;
  const std::vector<Group> waiting = open.all();
  std::vector<Group> drawn;
  if (open.drawn) {
    state["drawn_step"] = to_json(*open.drawn);
    drawn = open.drawn->collected.groups;
  }
  std::set<int64_t> to_come = fates.in_flight();  // prompts that are given out again
  for (const Group& group : drawn) to_come.erase(group.ordinal);
  state["data_source"] = prompts.save(to_come);
  open.rollout.open_groups = waiting;
  open.rollout.open_groups.insert(open.rollout.open_groups.end(), drawn.begin(), drawn.end());
  state["ledger"] = fates.commit(step, prompts, open.rollout);
  buffer::add_open_groups(state["data_source"].as_object(), waiting);
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
