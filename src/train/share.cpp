#include "train/share.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "train/draft_training.h"

namespace slime::train {
namespace {

/// Executions, micro-batches and denominator of a step, as make_step counts them, over all ranks.
StepShare count_step(const TrainBatch& batch, const std::vector<std::vector<Indices>>& ranks,
                     algo::Reduction reduction) {
  std::unordered_set<int64_t> executions;
  double tokens = 0;
  StepShare step;
  step.num_micro_batches = step.num_predictions = 0;
  for (const std::vector<Indices>& rank : ranks) {
    for (const Indices& micro_batch : rank) {
      step.num_micro_batches += std::ranges::any_of(
          micro_batch, [&](int64_t i) { return batch.samples[i].response_length() > 0; });
      for (const int64_t i : micro_batch) {
        const TrainSample& sample = batch.samples[i];
        executions.insert(sample.rollout_id);
        const auto trained = std::ranges::count_if(sample.loss_mask, [](uint8_t m) { return m; });
        tokens += static_cast<double>(std::max<int64_t>(trained, 1));
        step.num_predictions += num_predictions(sample.total_length(), std::span(sample.loss_mask));
      }
    }
  }
  step.num_micro_batches = std::max<int64_t>(step.num_micro_batches, 1);
  step.num_predictions = std::max<int64_t>(step.num_predictions, 1);
  step.num_executions = static_cast<int64_t>(executions.size());
  step.denominator =
      reduction == algo::Reduction::kPerToken ? tokens : static_cast<double>(step.num_executions);
  return step;
}

}  // namespace

std::vector<BatchShare> divide(const TrainBatch& batch, const PlanOptions& options,
                               const FlopsModel& flops) {
  std::vector<BatchShare> shares(options.batching.dp);
  for (BatchShare& share : shares) {
    share.batch.is_scored_only = batch.is_scored_only;
    share.batch.version = batch.version;
  }
  for (const std::vector<std::vector<Indices>>& ranks : cut_steps(batch, options, flops)) {
    const StepShare counts = count_step(batch, ranks, options.reduction);
    for (std::size_t r = 0; r < shares.size(); ++r) {
      BatchShare& share = shares[r];
      StepShare& step = share.steps.emplace_back(counts);
      for (const Indices& members : ranks[r]) {
        Indices& micro_batch = step.micro_batches.emplace_back();
        for (const int64_t i : members) {
          micro_batch.push_back(static_cast<int64_t>(share.batch.samples.size()));
          share.batch.samples.push_back(batch.samples[i]);
          share.batch_indices.push_back(i);
        }
      }
    }
  }
  return shares;
}

std::vector<StepPlan> plan_share(const BatchShare& share, const PlanOptions& given) {
  const PlanOptions options = with_sharing_that_pays(share.batch.samples, given);
  std::vector<StepPlan> plans;
  for (const StepShare& step : share.steps) {
    StepPlan plan = make_step(share.batch.samples, step.micro_batches, options);
    plan.num_executions = step.num_executions;
    plan.denominator = step.denominator;
    plan.num_micro_batches = step.num_micro_batches;
    plan.num_predictions = step.num_predictions;
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace slime::train
