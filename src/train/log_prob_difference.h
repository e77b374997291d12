#pragma once

/// The mean differences between the trainer's and the engine's log-probs in a step where some samples
/// have none of the engine's (a function that returned a sample without them): the mean is of those
/// that have.

#include <map>
#include <string>

#include "algo/loss.h"
#include "train/micro_batch.h"

namespace slime::train {

/// The part of a step's denominator (StepPlan) that belongs to samples of this rank without engine
/// log-probs: executions, or their share where an execution has several samples, or trained tokens.
double share_without(const TokenColumn& engine, const TrainBatch& batch, const StepPlan& plan,
                     algo::Reduction reduction);

/// Of metrics that were divided by the whole `denominator`: train/train_rollout_logprob_abs_diff
/// and train/train_rollout_k3 become means over the rest; zero where nothing is left.
void scale_difference(std::map<std::string, double>& metrics, double denominator, double without);

}  // namespace slime::train
