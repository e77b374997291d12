#include "core/executions.h"

#include <unordered_map>

namespace slime {

std::vector<std::vector<const Sample*>> executions_of(const Group& group) {
  std::vector<std::vector<const Sample*>> executions;
  std::unordered_map<int64_t, std::size_t> place;
  for (const Sample& sample : group.samples) {
    std::size_t at = executions.size();
    if (sample.rollout_id) at = place.try_emplace(*sample.rollout_id, at).first->second;
    if (at == executions.size()) executions.emplace_back();
    executions[at].push_back(&sample);
  }
  return executions;
}

std::optional<double> execution_reward(const std::vector<const Sample*>& execution,
                                       const std::string& reward_key) {
  double sum = 0;
  double count = 0;
  for (const Sample* sample : execution) {
    if (sample->reward.is_null()) continue;
    sum += sample->reward_value(reward_key);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

}  // namespace slime
