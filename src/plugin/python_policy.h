#pragma once

/// --custom-tis-function-path and --custom-pg-loss-reducer-function-path: parts of the policy loss of a
/// micro-batch by functions in the plug-in host beside the trainer (docs/plugins.md).

#include <functional>
#include <optional>

#include "algo/policy_functions.h"
#include "plugin/shared_tensors.h"
#include "plugin/trainer_host.h"
#include "train/micro_batch.h"
#include "train/train_batch.h"

namespace slime::plugin {

struct PythonPolicyConfig {
  std::optional<int> correction;  // their places among the host's hooks
  std::optional<int> reducer;
  bool calculate_per_token_loss = false;
};

/// For one micro-batch: `weights` makes weights of tokens from masks.
using PolicyFunctionsFn = std::function<algo::PolicyFunctions(
    const train::TrainBatch& batch, const train::MicroBatch& micro_batch,
    std::function<Tensor(const Tensor& kept_T)> weights)>;

/// `host` and `tensors` outlive it. What it makes throws plugin::FunctionError.
PolicyFunctionsFn make_python_policy(TrainerHost& host, SharedTensors& tensors,
                                     const PythonPolicyConfig& config);

}  // namespace slime::plugin
