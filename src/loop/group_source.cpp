#include "loop/group_source.h"

namespace slime::loop {

std::vector<Group> OpenGroups::all() const {
  std::vector<Group> groups = taken;
  groups.insert(groups.end(), abandoned.begin(), abandoned.end());
  groups.insert(groups.end(), rollout.open_groups.begin(), rollout.open_groups.end());
  return groups;
}

OpenGroups open_groups_of(rollout::Rollout& rollout) {
  const auto lock = std::make_shared<rollout::Rollout::StateLock>(rollout);
  return {.locks = {lock}, .rollout = lock->snapshot()};
}

}  // namespace slime::loop
