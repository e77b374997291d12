#pragma once

/// --custom-advantage-function-path and --rollout-data-postprocess-path: functions over all samples of a
/// rollout step on a rank, in the plug-in host beside it (docs/plugins.md).

#include "plugin/shared_tensors.h"
#include "plugin/trainer_host.h"
#include "train/users_table.h"

namespace slime::plugin {

/// `hook`: its place among the host's. `host` and `tensors` outlive the functions, which throw
/// plugin::FunctionError.
train::UsersAdvantageFn make_python_advantage(TrainerHost& host, SharedTensors& tensors, int hook);

using RolloutIdFn = std::function<int64_t(int64_t rollouts_done)>;
train::PostprocessFn make_python_postprocess(TrainerHost& host, SharedTensors& tensors, int hook,
                                             RolloutIdFn rollout_id);

}  // namespace slime::plugin
