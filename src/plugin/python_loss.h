#pragma once

/// --custom-loss-function-path: fn(args, batch, logits, sum_of_sample_mean) in the plug-in host beside the
/// trainer (docs/plugins.md).
///
/// Columns of the batch and the log-probs of the policy lie in shared memory. Logits are reserved there
/// too and computed when the function reads them: one that asks for log-probs alone never pays for
/// them. On a GPU, whose memory is taken when it is given, theirs comes when they are read and goes back
/// behind the call. The host runs the backward pass of what the function did and writes the gradients by
/// log-probs, entropies and logits behind them.

#include "plugin/shared_tensors.h"
#include "plugin/trainer_host.h"
#include "train/users_loss.h"

namespace slime::plugin {

struct PythonLossConfig {
  int hook = 0;  // its place among the host's
  bool calculate_per_token_loss = false;
  double temperature = 1.0;  // that log-probs are taken at
};

/// `host` and `tensors` outlive the function. It throws plugin::FunctionError.
train::LossFn make_python_loss(TrainerHost& host, SharedTensors& tensors,
                               const PythonLossConfig& config);

}  // namespace slime::plugin
