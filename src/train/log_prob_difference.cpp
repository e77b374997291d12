#include "train/log_prob_difference.h"

#include <algorithm>

namespace slime::train {

double share_without(const TokenColumn& engine, const TrainBatch& batch, const StepPlan& plan,
                     algo::Reduction reduction) {
  double share = 0;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    for (const int64_t i : micro_batch.samples) {
      if (engine.of(i).defined()) continue;
      const TrainSample& sample = batch.samples[i];
      const auto trained = static_cast<double>(std::ranges::count(sample.loss_mask, uint8_t{1}));
      if (reduction == algo::Reduction::kPerToken) {
        share += std::max(trained, 1.0);
      } else if (sample.rollout_mask_total > 0) {
        share += trained / static_cast<double>(sample.rollout_mask_total);
      } else {
        share += 1 / static_cast<double>(sample.rollout_samples);
      }
    }
  }
  return share;
}

void scale_difference(std::map<std::string, double>& metrics, double denominator, double without) {
  const double rest = denominator - without;
  // Shares of executions add up to a whole but for rounding.
  const double scale = rest > 1e-9 * denominator ? denominator / rest : 0.0;
  for (const char* name : {"train/train_rollout_logprob_abs_diff", "train/train_rollout_k3"}) {
    const auto difference = metrics.find(name);
    if (difference != metrics.end()) difference->second *= scale;
  }
}

}  // namespace slime::train
