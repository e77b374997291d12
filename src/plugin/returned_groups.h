#pragma once

/// Groups that a rollout function returned, as those that the program gave out, or as new ones.

#include <optional>
#include <string>

#include "core/sample.h"
#include "plugin/payload.h"
#include "plugin/read_sample.h"

namespace slime::plugin {

/// What holds for a step's groups.
struct StepLimits {
  SampleLimits samples;
  int64_t samples_per_prompt = 1;
  std::string reward_key;
  bool needs_reward = true;
  WeightVersion version = 0;  // of the engine's weights
};

/// The ordinal by which the program gave out the group that `record` came of: group_index of its first
/// sample. Unset: it says none.
std::optional<int64_t> ordinal_of(const json::value& record);

/// `record`: a list of samples, or for a sample that became several of a list of its parts; or an object
/// whose `error` says why the host has none. `given`:
/// the group that it came of; of a group that the function made itself one without samples, and ordinals
/// are given later. Samples that no function says versions of are of `limits.version`. Throws
/// net::FrameError with what cannot be trained: a wrong field, no reward, too many samples.
Group read_group(const json::value& record, const Columns& columns, const Group& given,
                 const StepLimits& limits);

/// Parts of one sample train as one: they get a common rollout_id, where they have none. Behind the
/// group's ordinals.
void name_executions(Group& group);

}  // namespace slime::plugin
