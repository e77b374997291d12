#include "loop/data_state.h"

#include <optional>
#include <set>

namespace slime::loop {

json::object data_state(int64_t step, buffer::DataSource& prompts, OutcomeLog& outcomes,
                        OpenGroups open) {
  json::object state;
  const std::vector<Group> waiting = open.all();
  std::vector<Group> sampled;
  if (open.sampled) {
    state["drawn_step"] = to_json(*open.sampled);
    sampled = open.sampled->collected.groups;
  }
  std::set<int64_t> to_come = outcomes.in_flight();  // prompts that are given out again
  for (const Group& group : sampled) to_come.erase(group.ordinal);
  state["data_source"] = prompts.save(to_come);
  open.rollout.open_groups = waiting;
  open.rollout.open_groups.insert(open.rollout.open_groups.end(), sampled.begin(), sampled.end());
  state["ledger"] = outcomes.commit(step, prompts, open.rollout);
  buffer::add_open_groups(state["data_source"].as_object(), waiting);
  return state;
}

json::object data_state(int64_t step, StepBoundary boundary, OutcomeLog& outcomes) {
  outcomes.roll_back(boundary.outcomes);
  json::object state;
  state["data_source"] = boundary.prompts.save(outcomes.in_flight());
  state["ledger"] = outcomes.commit(step, boundary.prompts, boundary.rollout);
  return state;
}

}  // namespace slime::loop
