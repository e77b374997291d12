#pragma once

/// Engine and trainer that compute the same bits (--true-on-policy): which tokens are of the weights that
/// are trained, and the check that both give them the same log-prob.

#include "train/columns.h"
#include "train/micro_batch.h"
#include "train/train_batch.h"

namespace slime::train {

/// Whether all trained tokens are of the weights that are trained (TrainBatch::version), and have the
/// engine's log-probs.
bool is_on_policy(const TrainBatch& batch);

/// Compares the log-probs of one micro-batch by those weights, logprob_T, with the engine's, over the
/// trained tokens that are of them. Throws ConfigError with the first token that differs and the largest
/// difference, and for a sample without the engine's.
void check_log_probs(const TrainBatch& batch, const MicroBatch& micro_batch,
                     const TokenColumn& engine, const Tensor& logprob_T);

}  // namespace slime::train
