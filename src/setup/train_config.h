#pragma once

/// The trainer's configuration, from the user's words.

#include <string>
#include <vector>

#include "config/run_config.h"
#include "train/train_batch.h"
#include "train/trainer.h"

namespace slime::setup {

/// `num_rollouts` is the planned length of the run; the learning rate schedule spans it. Throws
/// ConfigError. Flags about experts are read where the model `has_experts`.
train::TrainConfig make_train_config(const config::RunConfig& config, int64_t num_rollouts,
                                     bool has_experts = true);

/// What is cut of the schedule of learning rates in a run of so many rollouts.
std::vector<std::string> schedule_notes(const config::RunConfig& config, int64_t num_rollouts);

/// Whether a micro-batch's logits may wait for its backward in what the device has free: no engine, no
/// evaluation and no function of the user's takes memory there meanwhile.
bool keeps_logits(const config::RunConfig& config);

train::TrainBatchConfig make_batch_config(const config::RunConfig& config);

/// The batch of a step: what its groups are to the objective of the run.
train::TrainBatch make_batch(const std::vector<Group>& groups, const config::RunConfig& config);

}  // namespace slime::setup
