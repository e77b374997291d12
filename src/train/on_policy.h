#pragma once

/// Engine and trainer that compute the same bits (--true-on-policy): which tokens are of the weights that
/// are trained, and the check that both give them the same log-prob.

#include "train/columns.h"
#include "train/micro_batch.h"
#include "train/train_batch.h"

namespace slime::train {

/// Whether all trained tokens are of one weight version, and have the engine's log-probs.
bool is_on_policy(const TrainBatch& batch);

/// The largest difference between the log-probs of one micro-batch by a pass over the weights that made
/// its newest tokens, logprob_T, and the engine's, over trained tokens of the batch's newest version.
/// Throws ConfigError with the first token where there is one, and for a sample without the engine's.
void check_log_probs(const TrainBatch& batch, const MicroBatch& micro_batch,
                     const TokenColumn& engine, const Tensor& logprob_T);

}  // namespace slime::train
