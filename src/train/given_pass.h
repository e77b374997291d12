#pragma once

/// A training pass whose advantages, weights and loss come from outside, as requests name them: forward,
/// loss and backward of one batch, with an update of its own later.
///
/// Losses are sums over the tokens of the batch. What a run divides by (its rollout executions) is
/// GivenUpdate::divisor, so that the same batch gives the weights of the run, bit for bit on a CPU.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "algo/loss.h"
#include "train/train_batch.h"

namespace slime::train {

/// Numbers for each response token of one sample; empty: not given.
struct GivenColumns {
  std::vector<float> advantages;
  std::vector<float> weights;  // what the token counts; 0: it trains nothing. Not given: the mask
  std::vector<float>
      old_log_probs;  // of the policy that the ratio is taken to; not given: this pass
};

struct GivenBatch {
  TrainBatch batch;  // the mask says which tokens train; the sampler's log-probs may be there
  std::vector<GivenColumns> columns;  // one for each sample
};

struct GivenLoss {
  /// Of the tokens of a micro-batch: the sum that is differentiated, and metrics, which are sums too.
  std::function<algo::Loss(const algo::PolicyColumns& in)> of;
  bool is_linear_in_advantages = true;  // no advantage, no gradient
  bool needs_reference = false;         // PolicyColumns::ref_T
};

struct GivenPass {
  algo::MetricSums sums;                      // of the loss, over the batch
  std::vector<std::vector<float>> log_probs;  // [response length] of each sample, before any update
};

struct GivenUpdate {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-12;
  double weight_decay = 0;
  double clip_norm = 0;  // L2 norm of the divided gradient; 0: not clipped
  double divisor = 1;    // of the gradient
};

struct GivenUpdateReport {
  double grad_norm = 0;  // of the divided gradient, before it is clipped
  int64_t step = 0;      // optimizer steps so far, this one included
};

}  // namespace slime::train
