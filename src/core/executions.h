#pragma once

/// Executions of a group: what was generated for one of its n members, in however many samples.
///
/// A generate function may split one execution into several samples (an agent's sub-tasks, a
/// shortened history), which share a rollout id. Baselines, pass@k, filters and mean rewards count
/// it once, with the mean of its samples' rewards: an execution that was split in three is neither
/// three attempts nor three times as important.

#include <optional>
#include <string>
#include <vector>

#include "core/sample.h"

namespace slime {

/// Samples with the same rollout id, in the order of their first ones; a sample without an id is an
/// execution of its own. The pointers are into `group`.
std::vector<std::vector<const Sample*>> executions_of(const Group& group);

/// The mean reward of an execution's samples that have one; nothing where none has. Throws
/// ConfigError as Sample::reward_value.
std::optional<double> execution_reward(const std::vector<const Sample*>& execution,
                                       const std::string& reward_key);

}  // namespace slime
