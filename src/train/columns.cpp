#include "train/columns.h"

#include <ATen/ATen.h>

#include <limits>
#include <unordered_set>

#include "comm/ordered_sum.h"

namespace slime::train {
namespace {

/// Sum and count of a column over all response tokens, for their plain mean; nothing when a sample
/// lacks it.
void add_tokens(const TokenColumn& column, const Indices& samples, const std::string& sum_name,
                const std::string& count_name, std::map<std::string, double>& out) {
  double sum = 0;
  double count = 0;
  for (const int64_t i : samples) {
    const Tensor& x = column.of(i);
    if (!x.defined()) return;
    sum += x.sum(at::kDouble).item<double>();
    count += static_cast<double>(x.numel());
  }
  out[sum_name] = sum;
  out[count_name] = count;
}

/// Per-rollout token mean (spec 10.1) of a column over the samples of all steps; nothing when a
/// sample lacks it.
void add_token_mean(const char* name, const TokenColumn& column, const TrainBatch& batch,
                    const Indices& samples, double num_executions,
                    std::map<std::string, double>& out) {
  double sum = 0;
  for (const int64_t i : samples) {
    const Tensor& x = column.of(i);
    if (!x.defined()) return;
    const TrainSample& sample = batch.samples[i];
    const Tensor wide = x.to(at::kDouble).contiguous();
    const auto* value = wide.const_data_ptr<double>();
    double masked = 0;
    for (int64_t t = 0; t < sample.response_length(); ++t)
      masked += sample.loss_mask[t] ? value[t] : 0.0;
    sum += masked / static_cast<double>(std::max<int64_t>(sample.rollout_mask_total, 1));
  }
  out[name] = sum / num_executions;
}

}  // namespace

Tensor column_of(const std::vector<float>& values, at::ScalarType dtype) {
  return at::tensor(at::ArrayRef<float>(values), at::kFloat).to(dtype);
}

std::vector<float> floats_of(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor narrow = x.to(at::kFloat).contiguous();
  return {narrow.const_data_ptr<float>(), narrow.const_data_ptr<float>() + narrow.numel()};
}

algo::PolicyColumns policy_columns(const kernels::LogProbs& scores, const MicroBatch& micro_batch,
                                   const Tensor& advantage_T, const Columns& columns) {
  algo::PolicyColumns in;
  in.logprob_T = scores.logprob_R;
  in.entropy_T = scores.entropy_R;
  in.old_T = columns.old.gather(micro_batch.samples);
  in.ref_T = columns.ref.gather(micro_batch.samples);
  in.engine_T = columns.engine.gather(micro_batch.samples);
  if (!in.engine_T.defined()) {
    in.known_engine_T = columns.engine.gather_known(micro_batch);
    in.has_engine_T = columns.engine.known(micro_batch);
  }
  in.listed = {scores.listed_A, micro_batch.sampler_A, micro_batch.centered.offsets};
  in.advantage_T = advantage_T;
  in.trained_T = micro_batch.trained_T;
  in.weight_T = micro_batch.weight_T;
  in.starts = micro_batch.starts;
  return in;
}

std::vector<float> mean_advantages(const TrainBatch& batch, const Columns& columns) {
  std::vector<float> means;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& sample = batch.samples[i];
    const Tensor& x = columns.advantage.of(i);
    double sum = 0, count = 0;
    if (x.defined()) {
      const Tensor wide = x.to(at::kDouble).contiguous();
      const auto* value = wide.const_data_ptr<double>();
      for (int64_t t = 0; t < sample.response_length(); ++t) {
        if (sample.loss_mask[t] == 0) continue;
        sum += value[t];
        ++count;
      }
    }
    means.push_back(count > 0 ? static_cast<float>(sum / count)
                              : std::numeric_limits<float>::quiet_NaN());
  }
  return means;
}

std::map<std::string, double> rollout_metrics(const TrainBatch& batch,
                                              const std::vector<StepPlan>& plans,
                                              const Columns& columns, comm::RankGroup& ranks) {
  Indices samples;
  double num_executions = 0;
  for (const StepPlan& plan : plans) {
    num_executions += static_cast<double>(plan.num_executions);
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      samples.insert(samples.end(), micro_batch.samples.begin(), micro_batch.samples.end());
    }
  }
  std::sort(samples.begin(), samples.end());  // the same sum for every packing

  std::map<std::string, double> out;
  add_token_mean("rollout/log_probs", columns.old, batch, samples, num_executions, out);
  add_token_mean("rollout/ref_log_probs", columns.ref, batch, samples, num_executions, out);
  add_token_mean("rollout/rollout_log_probs", columns.engine, batch, samples, num_executions, out);
  add_token_mean("rollout/teacher_log_probs", columns.teacher, batch, samples, num_executions, out);
  add_token_mean("rollout/opd_reverse_kl", columns.opd_reverse_kl, batch, samples, num_executions,
                 out);
  add_token_mean("rollout/values", columns.values, batch, samples, num_executions, out);
  add_tokens(columns.kl, samples, "kl sum", "kl tokens", out);
  add_token_mean("rollout/advantages", columns.advantage, batch, samples, num_executions, out);
  add_token_mean("rollout/returns", columns.returns, batch, samples, num_executions, out);
  const double count = sum(ranks, static_cast<double>(samples.size()), "counting samples");
  for (const char* name : {"rollout/rewards", "rollout/raw_reward", "rollout/truncated",
                           "rollout/response_lengths", "rollout/total_lengths"})
    out[name] = 0;  // on a rank without samples too
  for (const int64_t i : samples) {
    const TrainSample& sample = batch.samples[i];
    // Of executions: one that became several samples counts once.
    const double share = 1 / static_cast<double>(sample.rollout_samples) / num_executions;
    out["rollout/rewards"] += sample.reward * share;
    out["rollout/raw_reward"] += sample.raw_reward * share;
    out["rollout/truncated"] += sample.truncated / count;
    out["rollout/response_lengths"] += static_cast<double>(sample.response_length()) / count;
    out["rollout/total_lengths"] += static_cast<double>(sample.total_length()) / count;
  }
  std::map<std::string, double> all = sum_of_common(ranks, out, "metrics of the rollout");
  const auto kl_sum = all.extract("kl sum"), kl_tokens = all.extract("kl tokens");
  if (!kl_tokens.empty() && kl_tokens.mapped() > 0)
    all["rollout/kl"] = kl_sum.mapped() / kl_tokens.mapped();
  return all;
}

}  // namespace slime::train
