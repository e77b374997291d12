/// The trainer's passes over batches whose columns and loss come from outside (train/given_pass.h).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "kernels/device.h"
#include "train/bad_numbers.h"
#include "train/columns.h"
#include "train/pipeline.h"
#include "train/plan_options.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

void fill(TokenColumn& column, std::size_t sample, const std::vector<float>& values,
          at::ScalarType dtype) {
  if (!values.empty()) column.put(sample, column_of(values, dtype));
}

bool has_nonzero(const Tensor& x_T) { return x_T.count_nonzero().item<int64_t>() > 0; }

}  // namespace

GivenPass Trainer::pass_over(const GivenBatch& given, const GivenLoss& loss, bool adds_gradients) {
  check(mesh_.world().is_alone(), "given passes are of one rank");
  const TrainBatch& batch = given.batch;
  PlanOptions options = plan_options();
  // All of it is one step.
  std::vector<int64_t> ids = batch.rollout_ids();
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  options.batching.global_batch_size = static_cast<int64_t>(ids.size());
  std::vector<StepPlan> plans = plan_steps(batch, options, flops_);
  check(plans.size() == 1, "a given batch is one step");
  Columns columns(batch.samples.size());
  TokenColumn weights(batch.samples.size());
  const auto dtype = kernels::accumulator_of(network_.weights().flat());
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    fill(columns.advantage, i, given.columns[i].advantages, dtype);
    fill(columns.old, i, given.columns[i].old_log_probs, dtype);
    fill(columns.engine, i, batch.samples[i].rollout_log_probs, dtype);
    fill(weights, i, given.columns[i].weights, dtype);
  }
  if (loss.needs_reference) {
    as_reference([&](model::Network& reference) {
      score_into(reference, Scores::kOfAnother, plans, columns.ref, nullptr);
    });
  }
  std::vector<PipelineItem> items;
  for (MicroBatch& micro_batch : plans.front().micro_batches) {
    if (!micro_batch.has_response()) continue;
    if (const Tensor given_T = weights.gather(micro_batch.samples); given_T.defined())
      micro_batch.weight_T = given_T;
    const Tensor advantage_T = columns.advantage.gather(micro_batch.samples);
    const bool trains =
        !loss.is_linear_in_advantages || !advantage_T.defined() || has_nonzero(advantage_T);
    items.push_back({&micro_batch, adds_gradients && trains});
  }
  if (adds_gradients) network_.trained().enable_grad();
  GivenPass result;
  std::vector<std::string> problems;
  run_pipeline(
      network_, mesh_, items, [&](std::size_t i, const Pass& pass, const Tensor& hidden_LH) {
        const MicroBatch& micro_batch = *items[i].micro_batch;
        const kernels::LogProbs scores = pass.log_probs(hidden_LH, score_options(hidden_LH));
        columns.seen.put(micro_batch, scores.logprob_R.detach());
        Tensor advantage_T = columns.advantage.gather(micro_batch.samples);
        if (!advantage_T.defined()) advantage_T = at::zeros_like(scores.logprob_R);
        algo::Loss made = loss.of(policy_columns(scores, micro_batch, advantage_T, columns));
        const double value = made.sum.item<double>();
        if (!std::isfinite(value)) {
          std::vector<int64_t> places(micro_batch.samples.begin(), micro_batch.samples.end());
          problems.push_back(
              fmt::format("the loss of data[{}] is {}", fmt::join(places, "], data["), value));
        }
        for (const auto& [name, sum] : made.metrics) result.sums[name] += sum;
        return made.sum;
      });
  for (std::size_t i = 0; i < batch.samples.size(); ++i)
    result.log_probs.push_back(floats_of(columns.seen.of(i)));
  if (!problems.empty()) throw ConfigError(problems);
  return result;
}

GivenPass Trainer::look_at(const GivenBatch& batch, const GivenLoss& loss) {
  return pass_over(batch, loss, false);
}

GivenPass Trainer::add_gradients(const GivenBatch& batch, const GivenLoss& loss) {
  network_.trained().enable_grad();
  if (!has_given_gradients_) network_.trained().zero_grad();
  // What a pass that fails half-way has added goes.
  const Tensor before = has_given_gradients_ ? network_.trained().grad().clone() : Tensor();
  try {
    GivenPass result = pass_over(batch, loss, true);
    has_given_gradients_ = true;
    return result;
  } catch (...) {
    const at::NoGradGuard no_grad;
    Tensor grad = network_.trained().grad();
    if (before.defined()) {
      grad.copy_(before);
    } else {
      grad.zero_();
    }
    throw;
  }
}

GivenUpdateReport Trainer::apply(const GivenUpdate& update) {
  network_.trained().enable_grad();
  if (!has_given_gradients_) network_.trained().zero_grad();
  optimizer_.reduce_gradients();
  for (const model::NamedWeight& weight : network_.trained().tensors()) {
    if (std::ranges::find(config_.frozen, weight.name) != config_.frozen.end())
      model::Weights::view(network_.trained().grad(), weight).zero_();
  }
  const double norm = std::sqrt(optimizer_.gradient_squares()) / update.divisor;
  has_given_gradients_ = false;
  if (!std::isfinite(norm)) {
    const std::string names = name_bad_gradients(network_.trained());
    network_.trained().zero_grad();
    throw ConfigError("no update: gradients that are not finite, which are dropped: " + names);
  }
  const double clip = update.clip_norm > 0 ? std::min(1.0, update.clip_norm / (norm + 1e-6)) : 1.0;
  ++num_changes_;
  optimizer_.set_rates(update.beta1, update.beta2, update.eps);
  optimizer_.step(update.lr, update.weight_decay, clip / update.divisor);
  network_.trained().zero_grad();
  ++state_.num_steps;
  return {.grad_norm = norm, .step = optimizer_.num_steps()};
}

void Trainer::begin_again() {
  if (network_.trained().grad().defined()) network_.trained().zero_grad();
  has_given_gradients_ = false;
  optimizer_.begin_again();
  ++num_changes_;
}

}  // namespace slime::train
