#pragma once

/// Options that determine the packing of a step (train/micro_batch.h).

#include "model/network.h"
#include "train/micro_batch.h"
#include "train/trainer.h"

namespace slime::train {

/// Whether a token of advantage 0 adds nothing to the gradient, so that its backward pass may be
/// left out. So it is for the samples of a group that all got the same reward, unless something
/// else than the policy term is trained.
bool zero_advantage_is_inert(const TrainConfig& config);

/// Without PackingOptions::level_cost. The network outlives them.
PlanOptions plan_options_of(const TrainConfig& config, model::Network& network);

}  // namespace slime::train
