#include "train/critic.h"

#include <ATen/ATen.h>

#include <cmath>

#include "algo/loss.h"
#include "comm/ordered_sum.h"
#include "train/bad_numbers.h"
#include "train/pipeline.h"

namespace slime::train {

Critic::Critic(std::unique_ptr<model::Network> network, const CriticConfig& config,
               const comm::Mesh& mesh)
    : mesh_(mesh),
      config_(config),
      network_(std::move(network)),
      head_(network_->config().hidden_size, network_->weights().flat(), config.init_std,
            config.seed),
      network_optimizer_(network_->weights(), config.adam, {}, mesh),
      head_optimizer_(head_.weights(), config.adam, {}, mesh) {}

void Critic::value_into(const std::vector<StepPlan>& plans, TokenColumn& values) {
  const std::vector<PipelineItem> items = items_of(plans);
  std::vector<Tensor> of_item(items.size());
  run_pipeline(*network_, mesh_, items,
               [&](std::size_t i, const Pass& pass, const Tensor& hidden_LH) {
                 of_item[i] = pass.values(hidden_LH, head_);
                 return Tensor();
               });
  const auto options = at::TensorOptions(head_.weights().flat().scalar_type());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const MicroBatch& micro_batch = *items[i].micro_batch;
    values.put(micro_batch,
               from_last_stage(mesh_, of_item[i], micro_batch.trained_T.sizes(), options));
  }
}

Critic::Step Critic::train_step(const StepPlan& plan, const Columns& columns) {
  Step step;
  network_->weights().enable_grad();
  network_->weights().zero_grad();
  head_.weights().zero_grad();
  std::map<std::string, double>& metrics = step.metrics;
  std::vector<PipelineItem> items;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    if (micro_batch.has_response()) items.push_back({&micro_batch, true});
  }
  run_pipeline(
      *network_, mesh_, items, [&](std::size_t i, const Pass& pass, const Tensor& hidden_LH) {
        const MicroBatch& micro_batch = *items[i].micro_batch;
        const algo::Loss loss = algo::value_loss(config_.value_clip, pass.values(hidden_LH, head_),
                                                 columns.values.gather(micro_batch.samples),
                                                 columns.critic_returns.gather(micro_batch.samples),
                                                 micro_batch.weight_T);
        for (const auto& [name, value] : loss.metrics)
          metrics["train/critic-" + name] += value / plan.denominator;
        if (!std::isfinite(loss.metrics.at("value_loss")))
          step.bad_samples.insert(step.bad_samples.end(), micro_batch.samples.begin(),
                                  micro_batch.samples.end());
        return loss.sum;
      });
  metrics = sum(mesh_.pp(), metrics, "metrics of the critic");
  metrics = sum(mesh_.dp(), metrics, "metrics of the critic");
  network_optimizer_.reduce_gradients();
  head_optimizer_.reduce_gradients();
  const double norm =
      std::sqrt(network_optimizer_.gradient_squares() + head_optimizer_.gradient_squares()) /
      plan.denominator;
  const double lr = learning_rate(config_.lr, samples_done_);
  metrics["train/critic-grad_norm"] = norm;
  metrics["train/critic-lr-pg_0"] = lr;
  if (!std::isfinite(norm)) {
    step.is_updated = false;
    step.bad_gradients = name_bad_gradients(network_->weights());
    return step;
  }
  const double clip =
      config_.clip_grad > 0 ? std::min(1.0, config_.clip_grad / (norm + 1e-6)) : 1.0;
  network_optimizer_.step(lr, config_.lr.weight_decay, clip / plan.denominator);
  head_optimizer_.step(lr, config_.lr.weight_decay, clip / plan.denominator);
  samples_done_ += plan.num_executions;
  return step;
}

void Critic::reset_optimizers() {
  network_optimizer_.reset();
  head_optimizer_.reset();
}

CriticState Critic::state() const { return {network_optimizer_.num_steps(), samples_done_}; }

void Critic::set_state(const CriticState& state) {
  network_optimizer_.set_num_steps(state.num_updates);
  head_optimizer_.set_num_steps(state.num_updates);
  samples_done_ = state.samples_done;
}

double explained_variance(const std::vector<StepPlan>& plans, const Columns& columns,
                          comm::RankGroup& ranks) {
  std::vector<Tensor> returns, errors;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      if (!micro_batch.has_response()) continue;
      const Tensor trained_T = micro_batch.trained_T.nonzero().squeeze(1);
      const Tensor return_T = columns.critic_returns.gather(micro_batch.samples)
                                  .index_select(0, trained_T)
                                  .to(at::kDouble);
      const Tensor value_T =
          columns.values.gather(micro_batch.samples).index_select(0, trained_T).to(at::kDouble);
      returns.push_back(return_T);
      errors.push_back(return_T - value_T);
    }
  }
  const auto joined = [](const std::vector<Tensor>& parts) {
    return parts.empty() ? at::zeros({0}, at::kDouble) : at::cat(parts);
  };
  const Tensor return_T = joined(returns), error_T = joined(errors);
  // Two passes, so that a large mean costs no digits.
  const auto total = [&](const Tensor& a_T, const Tensor& b_T) {
    const double sums[] = {static_cast<double>(a_T.size(0)), a_T.sum().item<double>(),
                           b_T.sum().item<double>()};
    return sum(ranks, sums, "explained variance");
  };
  const std::vector<double> first = total(return_T, error_T);
  const double count = first[0];
  if (count == 0) return 0;
  const std::vector<double> second =
      total((return_T - first[1] / count).square(), (error_T - first[2] / count).square());
  // Equal returns differ by rounding alone, which nobody can explain: a millionth of their size.
  const double mean = first[1] / count, squares = second[1] + count * mean * mean;
  return second[1] > 1e-12 * squares ? 1 - second[2] / second[1] : 0;
}

}  // namespace slime::train
