#pragma once

/// Per-token columns of a batch: what the training steps of a rollout step read and do not change.

#include "algo/loss.h"
#include "comm/rank_group.h"
#include "kernels/linear_logprob.h"
#include "train/micro_batch.h"

namespace slime::train {

struct Columns {
  explicit Columns(std::size_t num_samples)
      : old(num_samples),
        seen(num_samples),
        ref(num_samples),
        engine(num_samples),
        teacher(num_samples),
        opd_reverse_kl(num_samples),
        values(num_samples),
        critic_returns(num_samples),
        kl(num_samples),
        advantage(num_samples),
        returns(num_samples) {}

  /// Log-probs of the old policy by the trainer; empty when the training pass provides them.
  TokenColumn old;
  TokenColumn seen;            // log-probs of the training pass, as it went
  TokenColumn ref;             // of the reference model; empty without one
  TokenColumn engine;          // as reported by the rollout engine; empty when it did not
  TokenColumn teacher;         // of the teacher of on-policy distillation; empty without one
  TokenColumn opd_reverse_kl;  // old log-probs minus the teacher's
  TokenColumn values;          // of the critic before its update; empty without one
  TokenColumn critic_returns;  // what the critic learns: without the divergence (spec 21.6)
  TokenColumn kl;              // divergence inside the token rewards; empty without kl_coef
  TokenColumn advantage;
  TokenColumn returns;
};

/// Numbers of one sample as a column takes them, and back; an undefined tensor has none.
Tensor column_of(const std::vector<float>& values, at::ScalarType dtype);
std::vector<float> floats_of(const Tensor& x);

/// What a loss of the policy reads of one micro-batch.
algo::PolicyColumns policy_columns(const kernels::LogProbs& scores, const MicroBatch& micro_batch,
                                   const Tensor& advantage_T, const Columns& columns);

/// TrainReport::advantages.
std::vector<float> mean_advantages(const TrainBatch& batch, const Columns& columns);

/// Means over the batch as the original logs them before training: rollout/log_probs,
/// rollout/advantages, ... per-rollout token means; rollout/kl a mean over all response tokens;
/// rollout/response_lengths, rollout/truncated, ... over samples; rollout/rewards and
/// rollout/raw_reward over executions. Of all ranks: each brings the samples of its plans.
std::map<std::string, double> rollout_metrics(const TrainBatch& batch,
                                              const std::vector<StepPlan>& plans,
                                              const Columns& columns, comm::RankGroup& ranks);

}  // namespace slime::train
