#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "algo/packed.h"
#include "core/error.h"
#include "model/tree_attention.h"
#include "train/bad_numbers.h"
#include "train/columns.h"

namespace slime::train {
namespace {

const TrainConfig& validated(const TrainConfig& config) {
  validate(config);
  return config;
}

/// Spec section 4.5: whether log-probs of the old policy need a pass of their own. With one
/// training step per rollout step the training pass itself gives them, and the ratio is exactly
/// one.
bool needs_old_pass(const TrainConfig& config, std::size_t num_steps) {
  if (config.objective == Objective::kSupervised) return false;
  const algo::PolicyLossConfig& policy = config.policy;
  if (policy.use_rollout_logprobs) return policy.reports_mismatch;
  return num_steps > 1 || algo::kl_coef_of(config.advantage) != 0 || policy.reports_mismatch ||
         std::holds_alternative<algo::SequenceClip>(policy.objective);
}

/// Whether a token of advantage 0 adds nothing to the gradient, so that its backward pass may be
/// left out. So it is for the samples of a group that all got the same reward, unless something
/// else than the policy term is trained.
bool zero_advantage_is_inert(const TrainConfig& config) {
  return config.objective == Objective::kPolicy && config.policy.entropy_coef == 0 &&
         (!config.policy.kl_loss || config.policy.kl_loss->coef == 0);
}

/// Whether a reward of 0 means an advantage of 0 on every token.
bool zero_reward_is_zero_advantage(const TrainConfig& config) {
  return std::holds_alternative<algo::GroupRelative>(config.advantage) &&
         !config.normalize_advantages;
}

Tensor to_tensor(const std::vector<float>& values, at::ScalarType dtype) {
  return at::tensor(at::ArrayRef<float>(values), at::kFloat).to(dtype);
}

std::vector<float> to_floats(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor narrow = x.to(at::kFloat).contiguous();
  return {narrow.const_data_ptr<float>(), narrow.const_data_ptr<float>() + narrow.numel()};
}

void add(algo::MetricSums& sums, const algo::MetricSums& more) {
  for (const auto& [name, value] : more) sums[name] += value;
}

std::string ordinals_of(const TrainBatch& batch, const MicroBatch& micro_batch) {
  std::vector<int64_t> ordinals;
  for (const int64_t i : micro_batch.samples) ordinals.push_back(batch.samples[i].ordinal);
  return fmt::format("{}", fmt::join(ordinals, ", "));
}

std::vector<int64_t> lengths_of(const TrainBatch& batch, const std::vector<StepPlan>& plans) {
  std::vector<int64_t> lengths;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      for (const int64_t i : micro_batch.samples)
        lengths.push_back(batch.samples[i].total_length());
    }
  }
  return lengths;
}

}  // namespace

Trainer::Trainer(model::Network& network, const TrainConfig& config, const Clock& clock,
                 std::unique_ptr<model::Network> reference)
    : network_(network),
      config_(validated(config)),
      advantage_fn_(algo::make_advantage_fn(config.advantage)),
      flops_(flops_model_of(network.config())),
      clock_(clock),
      reference_(std::move(reference)),
      optimizer_(network.weights(), config.adam) {
  if (needs_reference(config_) && reference_ == nullptr) {
    throw ConfigError("use-kl-loss, kl-coef: need a reference model; give --ref-load");
  }
  network_.set_recompute(config_.recompute);
}

PlanOptions Trainer::plan_options() const {
  const bool separates = zero_advantage_is_inert(config_) && zero_reward_is_zero_advantage(config_);
  return {config_.batching, config_.packing, config_.reduction, separates,
          network_.weights().grad().scalar_type()};
}

TrainReport Trainer::train(const TrainBatch& batch) {
  const auto start = clock_.now();
  TrainReport report;
  const std::vector<StepPlan> plans = plan_steps(batch, plan_options(), flops_);
  const std::vector<int64_t> lengths = lengths_of(batch, plans);
  for (const int64_t length : lengths) report.num_tokens += length;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      report.num_computed_tokens += micro_batch.packed.tokens.num_tokens();
    }
  }
  report.perf["perf/data_preprocess_time"] = seconds_between(start, clock_.now());

  Columns columns = prepare(batch, plans, report);
  report.rollout = rollout_metrics(batch, plans, columns);

  const auto train_start = clock_.now();
  if (config_.reset_optimizer_states) optimizer_.reset();
  for (const StepPlan& plan : plans) {
    report.steps.push_back(train_step(batch, plan, columns));
    if (skipped_in_a_row_ <= config_.max_skipped_steps) continue;
    report.stopped = fmt::format("training stopped after {} steps in a row without finite gradients", skipped_in_a_row_);
    break;
  }
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    report.log_probs.push_back(to_floats(columns.old.of(i).defined() ? columns.old.of(i) : columns.seen.of(i)));
  }
  const double seconds = seconds_between(train_start, clock_.now());
  report.perf["perf/actor_train_time"] = seconds;
  report.perf["perf/actor_train_tflops"] = 3 * forward_flops(flops_, lengths) / seconds / 1e12;
  report.perf["perf/actor_train_tok_per_s"] = static_cast<double>(report.num_tokens) / seconds;

  ++state_.rollouts_done;
  if (reference_ != nullptr && config_.ref_update_interval > 0 &&
      state_.rollouts_done % config_.ref_update_interval == 0) {
    reference_->weights().flat().copy_(network_.weights().flat());
  }
  report.perf["perf/train_time"] = seconds_between(start, clock_.now());
  return report;
}

Columns Trainer::prepare(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                         TrainReport& report) {
  Columns columns(batch.samples.size());
  if (config_.objective == Objective::kSupervised) return columns;
  const auto dtype = network_.weights().grad().scalar_type();
  const double forward = forward_flops(flops_, lengths_of(batch, plans));
  const auto timed_pass = [&](model::Network& network, TokenColumn& column,
                              const std::string& name) {
    const auto start = clock_.now();
    score_into(network, plans, column, nullptr);
    const double seconds = seconds_between(start, clock_.now());
    report.perf["perf/" + name + "_time"] = seconds;
    report.perf["perf/" + name + "_tflops"] = forward / seconds / 1e12;
  };
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& sample = batch.samples[i];
    if (sample.rollout_log_probs.size() == sample.loss_mask.size()) {
      columns.engine.put(i, to_tensor(sample.rollout_log_probs, dtype));
    }
  }
  if (needs_reference(config_)) timed_pass(*reference_, columns.ref, "ref_log_probs");
  if (needs_old_pass(config_, plans.size())) timed_pass(network_, columns.old, "log_probs");
  compute_advantages(batch, plans, columns);
  return columns;
}

void Trainer::score_into(model::Network& network, const std::vector<StepPlan>& plans,
                         TokenColumn& log_probs, TokenColumn* entropies) {
  const at::NoGradGuard no_grad;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      model::TreeAttention attention(micro_batch.packed.tokens);
      const auto scores =
          forward_log_probs(network, micro_batch, attention, {.temperature = config_.temperature});
      log_probs.put(micro_batch, scores.logprob_R);
      if (entropies != nullptr) entropies->put(micro_batch, scores.entropy_R);
    }
  }
}

void Trainer::compute_advantages(const TrainBatch& batch, const std::vector<StepPlan>& plans,
                                 Columns& columns) {
  const at::NoGradGuard no_grad;
  const double kl_coef = algo::kl_coef_of(config_.advantage);
  algo::Moments moments;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      algo::ScoredTokens in;
      std::vector<double> scores;
      for (const int64_t i : micro_batch.samples) scores.push_back(batch.samples[i].reward);
      in.score_R = at::tensor(scores, micro_batch.weight_T.scalar_type());
      in.starts = micro_batch.starts;
      in.trained_T = micro_batch.trained_T;
      if (kl_coef != 0) {
        const TokenColumn& old = config_.policy.use_rollout_logprobs ? columns.engine : columns.old;
        const Tensor old_T = old.gather(micro_batch.samples);
        if (!old_T.defined())
          throw ConfigError("use-rollout-logprobs: the samples have no engine log-probs");
        in.kl_T =
            algo::kl_estimate(config_.kl_type, old_T, columns.ref.gather(micro_batch.samples));
        columns.kl.put(micro_batch, in.kl_T);
      }
      const algo::Advantages advantages = advantage_fn_(in);
      columns.advantage.put(micro_batch, advantages.advantage_T);
      columns.returns.put(micro_batch, advantages.return_T);
      moments += algo::moments_of(advantages.advantage_T, in.trained_T);
    }
  }
  if (!config_.normalize_advantages) return;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      columns.advantage.put(micro_batch,
                            algo::whiten(columns.advantage.gather(micro_batch.samples), moments));
    }
  }
}

algo::MetricSums Trainer::accumulate(const TrainBatch& batch, const StepPlan& plan,
                                     Columns& columns, std::vector<std::string>& problems) {
  algo::MetricSums sums;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    if (!micro_batch.has_response()) continue;
    const Tensor advantage_T = columns.advantage.gather(micro_batch.samples);
    const bool trains =
        !zero_advantage_is_inert(config_) || advantage_T.count_nonzero().item<int64_t>() > 0;
    const at::AutoGradMode grad_mode(trains);
    model::TreeAttention attention(micro_batch.packed.tokens);
    const auto scores = forward_log_probs(
        network_, micro_batch, attention,
        {.temperature = config_.temperature, .entropy_gradient = config_.policy.entropy_coef != 0});
    columns.seen.put(micro_batch, scores.logprob_R.detach());
    algo::PolicyColumns in;
    algo::Loss loss;
    if (config_.objective == Objective::kSupervised) {
      loss = algo::supervised_loss(scores.logprob_R, micro_batch.weight_T);
    } else {
      in.logprob_T = scores.logprob_R;
      in.entropy_T = scores.entropy_R;
      in.old_T = columns.old.gather(micro_batch.samples);
      in.ref_T = columns.ref.gather(micro_batch.samples);
      in.engine_T = columns.engine.gather(micro_batch.samples);
      in.advantage_T = advantage_T;
      in.trained_T = micro_batch.trained_T;
      in.weight_T = micro_batch.weight_T;
      in.starts = micro_batch.starts;
      loss = algo::policy_loss(config_.policy, in);
    }
    if (!std::isfinite(loss.metrics.at("loss"))) {
      const NamedColumn causes[] = {{"the engine's log-prob", in.engine_T},
                                    {"the reference's log-prob", in.ref_T},
                                    {"the old log-prob", in.old_T},
                                    {"the advantage", in.advantage_T},
                                    {"the log-prob", scores.logprob_R}};
      const std::string token = first_bad_token(batch, micro_batch, causes);
      problems.push_back(fmt::format("the loss of samples {} is {}{}", ordinals_of(batch, micro_batch),
                                     loss.metrics.at("loss"), token.empty() ? "" : ", first at " + token));
    }
    add(sums, loss.metrics);
    if (trains) loss.sum.backward();
  }
  return sums;
}

StepReport Trainer::train_step(const TrainBatch& batch, const StepPlan& plan, Columns& columns) {
  StepReport report;
  report.step = state_.num_steps++;
  network_.weights().zero_grad();
  std::vector<std::string> problems;
  const algo::MetricSums sums = accumulate(batch, plan, columns, problems);
  for (const auto& [name, value] : sums) report.metrics["train/" + name] = value / plan.denominator;

  const double norm =
      std::sqrt(kernels::sum_of_squares(network_.weights().grad())) / plan.denominator;
  const double lr = learning_rate(config_.lr, state_.samples_done);
  report.metrics["train/grad_norm"] = norm;
  report.metrics["train/lr-pg_0"] = lr;
  report.metrics["train/global_batch_size"] = static_cast<double>(plan.num_executions);
  if (!std::isfinite(norm)) {
    ++skipped_in_a_row_;
    problems.push_back("gradients that are not finite: " + name_bad_gradients(network_.weights()));
    if (problems.size() == 1) problems.push_back(trace_gradients(batch, plan, columns));
    report.skipped = fmt::format("{}", fmt::join(problems, "; "));
    return report;
  }
  skipped_in_a_row_ = 0;
  // Megatron's form: a norm at the limit is scaled too, by less than a millionth.
  const double clip =
      config_.clip_grad > 0 ? std::min(1.0, config_.clip_grad / (norm + 1e-6)) : 1.0;
  optimizer_.step(lr, weight_decay(config_.lr, state_.samples_done), clip / plan.denominator);
  state_.samples_done += plan.num_executions;
  return report;
}

std::string Trainer::trace_gradients(const TrainBatch& batch, const StepPlan& plan, Columns& columns) {
  std::string found = "each micro-batch alone has finite ones";
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    network_.weights().zero_grad();
    std::vector<std::string> ignored;
    accumulate(batch, {.micro_batches = {micro_batch}}, columns, ignored);
    if (std::isfinite(kernels::sum_of_squares(network_.weights().grad()))) continue;
    found = "they come from samples " + ordinals_of(batch, micro_batch);
    break;
  }
  return found;
}

std::vector<ScoredSample> Trainer::score(std::span<const TrainSample> samples) {
  std::vector<StepPlan> plans;
  plans.push_back(plan_pass(samples, plan_options()));
  TokenColumn log_probs(samples.size()), entropies(samples.size());
  score_into(network_, plans, log_probs, &entropies);
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

algo::MetricSums Trainer::accumulate_gradients(const TrainBatch& batch) {
  std::vector<StepPlan> plans;
  plans.push_back(plan_pass(batch.samples, plan_options()));
  TrainReport ignored;
  Columns columns = prepare(batch, plans, ignored);
  network_.weights().zero_grad();
  std::vector<std::string> problems;
  return accumulate(batch, plans.front(), columns, problems);
}

TrainerState Trainer::state() const {
  TrainerState state = state_;
  state.num_updates = optimizer_.num_steps();
  return state;
}

void Trainer::set_state(const TrainerState& state) {
  state_ = state;
  optimizer_.set_num_steps(state.num_updates);
}

}  // namespace slime::train
