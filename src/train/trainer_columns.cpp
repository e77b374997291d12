/// The trainer's passes without gradient: the per-token columns of a batch (log-probs of the old
/// policy, the reference and the teacher, values, advantages) before its first training step.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "algo/packed.h"
#include "comm/ordered_sum.h"
#include "core/error.h"
#include "kernels/device.h"
#include "kernels/trace.h"
#include "model/adapters.h"
#include "train/columns.h"
#include "train/on_policy.h"
#include "train/pipeline.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

/// Spec section 4.5: whether log-probs of the old policy need a pass of their own. With one
/// training step per rollout step the training pass itself gives them, and the ratio is exactly
/// one.
bool needs_old_pass(const TrainConfig& config, std::size_t num_steps) {
  if (config.objective != Objective::kPolicy) return false;
  if (config.routing_replay == TrainConfig::RoutingReplay::kOldPass) return true;
  const algo::PolicyLossConfig& policy = config.policy;
  if (policy.use_rollout_logprobs) return policy.reports_mismatch;
  return num_steps > 1 || config.critic || config.keep_old_actor || config.distillation_coef ||
         algo::kl_coef_of(config.advantage) != 0 || policy.reports_mismatch ||
         std::holds_alternative<algo::SequenceClip>(policy.objective);
}

}  // namespace

void Trainer::as_reference(const std::function<void(model::Network&)>& pass) {
  if (others_.reference != nullptr) return pass(*others_.reference);
  check(network_.adapters() != nullptr, "a divergence has a reference");
  const model::AdaptersOff base(network_.adapters());
  pass(network_);
}

Columns Trainer::prepare(const TrainBatch& batch, std::vector<StepPlan>& plans,
                         TrainReport& report) {
  Columns columns = score_columns(batch, plans, report);
  if (config_.postprocess) postprocess(batch, plans, columns);
  return columns;
}

Columns Trainer::score_columns(const TrainBatch& batch, std::vector<StepPlan>& plans,
                               TrainReport& report) {
  Columns columns(batch.samples.size());
  if (config_.objective == Objective::kSupervised) return columns;
  const auto dtype = kernels::accumulator_of(network_.weights().flat());
  const double forward = forward_flops(flops_, lengths_of(batch, plans));
  const auto timed_pass = [&](model::Network& network, TokenColumn& column,
                              const std::string& name) {
    const auto start = clock_.now();
    if (config_.before_scoring)
      config_.before_scoring(name == "log_probs" ? "" : name.substr(0, name.find('_') + 1));
    score_into(network, name == "log_probs" ? Scores::kOfPolicy : Scores::kOfAnother, plans, column,
               nullptr);
    const double seconds = seconds_between(start, clock_.now());
    report.perf["perf/" + name + "_time"] = seconds;
    report.perf["perf/" + name + "_tflops"] = forward / seconds / 1e12;
  };
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& sample = batch.samples[i];
    if (sample.rollout_log_probs.size() == sample.loss_mask.size()) {
      columns.engine.put(i, column_of(sample.rollout_log_probs, dtype));
    }
    // A response without a token has all of them.
    if (!sample.teacher_log_probs.empty() ||
        (config_.distillation_coef && sample.loss_mask.empty()))
      columns.teacher.put(i, column_of(sample.teacher_log_probs, dtype));
  }
  if (needs_reference(config_))
    as_reference(
        [&](model::Network& reference) { timed_pass(reference, columns.ref, "ref_log_probs"); });
  if (config_.objective == Objective::kPreference) return columns;
  if (config_.has_teacher_model) timed_pass(*others_.teacher, columns.teacher, "teacher_log_probs");
  if (needs_old_pass(config_, plans.size())) {
    if (config_.true_on_policy && !config_.keep_old_actor && is_on_policy(batch)) {
      columns.old = columns.engine;  // that pass would compute the same numbers
    } else {
      timed_pass(config_.keep_old_actor ? *others_.old_actor : network_, columns.old, "log_probs");
    }
  }
  if (critic_) {
    const auto start = clock_.now();
    critic_->value_into(plans, columns.values);
    report.perf["perf/critic_values_time"] = seconds_between(start, clock_.now());
  }
  compute_advantages(batch, plans, columns);
  return columns;
}

void Trainer::score_into(model::Network& network, Scores whose, std::vector<StepPlan>& plans,
                         TokenColumn& log_probs, TokenColumn* entropies) {
  const kernels::TraceRange range("score");
  using Replay = TrainConfig::RoutingReplay;
  std::vector<PipelineItem> items = items_of(plans);
  std::vector<RoutingOfPass> routing(items.size());
  if (whose == Scores::kOfPolicy && config_.routing_replay != Replay::kNone && has_experts()) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      routing[i].replays = config_.routing_replay == Replay::kEngine;
      items[i].routing = &routing[i];
    }
  }
  std::vector<kernels::LogProbs> scores(items.size());
  run_pipeline(network, mesh_, items,
               [&](std::size_t i, const Pass& pass, const Tensor& hidden_LH) {
                 scores[i] = pass.log_probs(hidden_LH, {.temperature = config_.temperature});
                 return Tensor();
               });
  if (whose == Scores::kOfPolicy && config_.routing_replay == Replay::kOldPass) {
    auto recorded = routing.begin();
    for (StepPlan& plan : plans) {
      for (MicroBatch& micro_batch : plan.micro_batches)
        micro_batch.visited_YLK = std::move(recorded++->made_YLK);
    }
  }
  const auto options = at::TensorOptions(kernels::accumulator_of(network.weights().flat()));
  for (std::size_t i = 0; i < items.size(); ++i) {
    const MicroBatch& micro_batch = *items[i].micro_batch;
    const auto of_tokens = [&](const Tensor& x_T) {
      return from_last_stage(mesh_, x_T, micro_batch.trained_T.sizes(), options);
    };
    log_probs.put(micro_batch, of_tokens(scores[i].logprob_R));
    if (entropies != nullptr) entropies->put(micro_batch, of_tokens(scores[i].entropy_R));
  }
}

const TokenColumn& Trainer::old_policy(const Columns& columns) const {
  return config_.policy.use_rollout_logprobs ? columns.engine : columns.old;
}

void Trainer::add_divergence(const MicroBatch& micro_batch, Columns& columns) {
  if (algo::kl_coef_of(config_.advantage) == 0) return;
  const Tensor old_T = old_policy(columns).gather(micro_batch.samples);
  if (!old_T.defined())
    throw ConfigError("use-rollout-logprobs: the samples have no engine log-probs");
  columns.kl.put(micro_batch, algo::kl_estimate(config_.kl_type, old_T,
                                                columns.ref.gather(micro_batch.samples)));
}

algo::Advantages Trainer::advantages_of(const TrainBatch& batch, const MicroBatch& micro_batch,
                                        Columns& columns) {
  algo::ScoredTokens in;
  std::vector<double> scores;
  for (const int64_t i : micro_batch.samples) scores.push_back(batch.samples[i].reward);
  in.score_R = at::tensor(scores, micro_batch.weight_T.scalar_type());
  in.starts = micro_batch.starts;
  in.trained_T = micro_batch.trained_T;
  if (critic_) {
    in.value_T = columns.values.gather(micro_batch.samples).to(in.score_R.dtype());
    // The critic holds no policy log-probs: its returns lack the divergence (spec 21.6).
    columns.critic_returns.put(micro_batch, advantage_fn_(in).return_T);
  }
  Tensor old_T;
  if (config_.distillation_coef) {
    old_T = old_policy(columns).gather(micro_batch.samples);
    if (!old_T.defined())
      throw ConfigError("use-rollout-logprobs: the samples have no engine log-probs");
  }
  in.kl_T = columns.kl.gather(micro_batch.samples);
  algo::Advantages advantages;
  if (config_.users_advantage) {
    advantages = {columns.advantage.gather(micro_batch.samples),
                  columns.returns.gather(micro_batch.samples)};
  } else {
    advantages = advantage_fn_(in);
  }
  if (config_.distillation_coef) {
    const Tensor teacher_T = columns.teacher.gather(micro_batch.samples);
    if (!teacher_T.defined())
      throw ConfigError("use-opd: a sample has no teacher log-probs; check --opd-type");
    columns.opd_reverse_kl.put(micro_batch, old_T - teacher_T);
    // A function of the user's makes the whole advantage, distillation included.
    if (config_.users_advantage) return advantages;
    advantages.advantage_T = algo::distilled_advantage(advantages.advantage_T, old_T, teacher_T,
                                                       *config_.distillation_coef);
    // There advantages and returns are the same list (spec 6.6).
    if (std::holds_alternative<algo::ReinforceBaseline>(config_.advantage))
      advantages.return_T = advantages.advantage_T;
  }
  return advantages;
}

void Trainer::compute_advantages(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                                 Columns& columns) {
  const kernels::TraceRange range("advantages");
  const at::NoGradGuard no_grad;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) add_divergence(micro_batch, columns);
  }
  if (config_.users_advantage) users_advantages(batch, plans, columns);
  algo::Moments moments;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      const algo::Advantages advantages = advantages_of(batch, micro_batch, columns);
      columns.advantage.put(micro_batch, advantages.advantage_T);
      columns.returns.put(micro_batch, advantages.return_T);
      moments += algo::moments_of(advantages.advantage_T, micro_batch.trained_T);
    }
  }
  if (!config_.normalize_advantages) return;
  const double own[] = {moments.count, moments.sum, moments.squares};
  const std::vector<double> all = sum(ranks_, own, "whitening advantages");
  moments = {.count = all[0], .sum = all[1], .squares = all[2]};
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      columns.advantage.put(micro_batch,
                            algo::whiten(columns.advantage.gather(micro_batch.samples), moments));
    }
  }
}

std::vector<ScoredSample> Trainer::score(std::span<const TrainSample> samples) {
  std::vector<StepPlan> plans;
  plans.push_back(plan_pass(samples, plan_options()));
  TokenColumn log_probs(samples.size()), entropies(samples.size());
  score_into(network_, Scores::kOfPolicy, plans, log_probs, &entropies);
  const auto numbers = [](const Tensor& x) {
    const Tensor wide = x.to(at::kDouble).contiguous();
    return std::vector<double>(wide.const_data_ptr<double>(),
                               wide.const_data_ptr<double>() + wide.numel());
  };
  std::vector<ScoredSample> out;
  for (std::size_t i = 0; i < samples.size(); ++i)
    out.push_back({numbers(log_probs.of(i)), numbers(entropies.of(i))});
  return out;
}

}  // namespace slime::train
