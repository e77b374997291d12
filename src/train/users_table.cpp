/// The trainer's side of functions of the user's over all samples of a rollout step.

#include "train/users_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/ordered_sum.h"
#include "core/error.h"
#include "kernels/device.h"
#include "train/columns.h"
#include "train/draft_training.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

Indices samples_of(const std::vector<StepPlan>& plans) {
  Indices samples;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches)
      samples.insert(samples.end(), micro_batch.samples.begin(), micro_batch.samples.end());
  }
  std::ranges::sort(samples);
  return samples;
}

}  // namespace

UsersTable Trainer::users_table(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                                const Columns& columns) const {
  UsersTable table{.batch = batch, .samples = samples_of(plans)};
  std::vector<uint8_t> mask;
  for (const int64_t i : table.samples) {
    const std::vector<uint8_t>& own = batch.samples[i].loss_mask;
    mask.insert(mask.end(), own.begin(), own.end());
  }
  table.trained_T = at::tensor(mask, at::kByte).to(at::kBool);
  table.old_T = columns.old.gather(table.samples);
  table.ref_T = columns.ref.gather(table.samples);
  table.engine_T = columns.engine.gather(table.samples);
  table.teacher_T = columns.teacher.gather(table.samples);
  table.value_T = columns.values.gather(table.samples);
  table.kl_T = columns.kl.gather(table.samples);
  table.advantage_T = columns.advantage.gather(table.samples);
  table.return_T = columns.returns.gather(table.samples);
  return table;
}

namespace {

/// The numbers of these samples' tokens, one tensor for each.
void put(TokenColumn& column, const TrainBatch& batch, const Indices& samples, const Tensor& x_T) {
  if (!x_T.defined()) return;
  int64_t begin = 0;
  for (const int64_t i : samples) {
    const int64_t length = batch.samples[i].response_length();
    column.put(i, x_T.narrow(0, begin, length));
    begin += length;
  }
}

}  // namespace

void Trainer::users_advantages(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                               Columns& columns) {
  UsersTable table = users_table(batch, plans, columns);
  if (table.samples.empty()) return;  // a rank may have none
  if (!table.kl_T.defined()) {
    table.kl_T = at::zeros({table.trained_T.size(0)},
                           at::dtype(kernels::accumulator_of(network_.weights().flat())));
  }
  const algo::Advantages advantages = config_.users_advantage(table);
  put(columns.advantage, batch, table.samples, advantages.advantage_T);
  put(columns.returns, batch, table.samples, advantages.return_T);
}

void Trainer::postprocess(const TrainBatch& batch, std::vector<StepPlan>& plans, Columns& columns) {
  UsersTable table = users_table(batch, plans, columns);
  if (!table.samples.empty()) {
    config_.postprocess(state_.rollouts_done, table);
    put(columns.old, batch, table.samples, table.old_T);
    put(columns.ref, batch, table.samples, table.ref_T);
    put(columns.engine, batch, table.samples, table.engine_T);
    put(columns.teacher, batch, table.samples, table.teacher_T);
    put(columns.values, batch, table.samples, table.value_T);
    put(columns.kl, batch, table.samples, table.kl_T);
    put(columns.advantage, batch, table.samples, table.advantage_T);
    put(columns.returns, batch, table.samples, table.return_T);
  }
  TokenColumn trained(batch.samples.size());
  put(trained, batch, table.samples, table.trained_T);
  for (StepPlan& plan : plans) {
    double tokens = 0;
    int64_t predictions = 0;
    for (MicroBatch& micro_batch : plan.micro_batches) {
      micro_batch.trained_T = trained.gather(micro_batch.samples);
      micro_batch.weight_T = token_weights_of(batch, micro_batch, micro_batch.trained_T);
      tokens += algo::token_denominator(micro_batch.trained_T, micro_batch.starts);
      if (config_.draft_loss_scale) predictions += num_predictions(micro_batch);
    }
    const bool is_per_token = config_.reduction == algo::Reduction::kPerToken;
    if (!is_per_token && !config_.draft_loss_scale) continue;
    const double own[] = {tokens, static_cast<double>(predictions)};
    const std::vector<double> all = sum(ranks_, own, "counting trained tokens");
    if (is_per_token) plan.denominator = all[0];
    plan.num_predictions = std::max<int64_t>(static_cast<int64_t>(all[1]), 1);
  }
}

Tensor Trainer::token_weights_of(const TrainBatch& batch, const MicroBatch& micro_batch,
                                 const Tensor& mask_T) const {
  std::vector<double> totals;
  for (const int64_t i : micro_batch.samples)
    totals.push_back(static_cast<double>(batch.samples[i].rollout_mask_total));
  return algo::token_weights(config_.reduction, mask_T,
                             at::tensor(totals, micro_batch.weight_T.scalar_type()),
                             micro_batch.starts);
}

}  // namespace slime::train
