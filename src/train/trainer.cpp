#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "algo/packed.h"
#include "comm/ordered_sum.h"
#include "core/error.h"
#include "kernels/device.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/peak.h"
#include "kernels/trace.h"
#include "model/adapters.h"
#include "train/bad_numbers.h"
#include "train/columns.h"
#include "train/draft_training.h"
#include "train/kept_logits.h"
#include "train/level_cost.h"
#include "train/log_prob_difference.h"
#include "train/on_policy.h"
#include "train/pipeline.h"
#include "train/plan_options.h"
#include "train/rank_report.h"

namespace slime::train {
namespace {

/// Of the GPU that has the weights, where products are in 16 bits and its rate is known.
std::optional<double> peak_flops_of(const Tensor& weights) {
  if (!weights.is_cuda() || weights.element_size() != 2) return std::nullopt;
  return kernels::peak_flops(kernels::opened_gpu().description());
}

const TrainConfig& checked(const TrainConfig& config) {
  check_config(config);
  return config;
}

void add(algo::MetricSums& sums, const algo::MetricSums& more) {
  for (const auto& [name, value] : more) sums[name] += value;
}

constexpr const char* kWithoutEngine = "share without engine log-probs";

/// sync: what is timed is done, and the engine's stream may read the weights. Not the whole device:
/// an engine beside the trainer may be recording, and nobody may wait for a stream that records.
void wait_for(const Tensor& weights) {
  if (weights.is_cpu()) return;
  c10::impl::VirtualGuardImpl(weights.device().type()).getStream(weights.device()).synchronize();
}

}  // namespace

Trainer::Trainer(model::Network& network, const TrainConfig& config, const Clock& clock,
                 OtherNetworks others, const comm::Mesh& mesh)
    : mesh_(mesh),
      ranks_(mesh.dp()),
      network_(network),
      config_(checked(config)),
      advantage_fn_(algo::make_advantage_fn(config.advantage)),
      flops_(flops_model_of(network)),
      clock_(clock),
      others_(std::move(others)),
      optimizer_(network.trained(), config.adam, config.frozen, mesh) {
  check(config_.batching.dp == ranks_.size(), "there is a rank for each share of a batch");
  check(!needs_reference(config_) || others_.reference != nullptr || network.adapters() != nullptr,
        "a divergence has a reference");
  check(!config_.has_teacher_model || others_.teacher != nullptr, "a teacher has a network");
  check(!config_.draft_loss_scale || network.num_draft_layers() == 1,
        "a draft layer that is trained is the network's only one");
  if (config_.keep_old_actor) {
    check(others_.old_actor != nullptr, "keep-old-actor has a network to keep weights in");
    rollout_actor_ = network_.trained().flat().clone();
    others_.old_actor->trained().flat().copy_(rollout_actor_);
  }
  // Of each rank.
  const double ranks_of_a_token = mesh.sizes().tp * mesh.sizes().cp;
  flops_.per_token /= ranks_of_a_token;
  flops_.per_pair /= ranks_of_a_token;
  check(!config_.critic || mesh.pp().is_alone(), "a critic has its output layer on every rank");
  if (config_.critic) {
    check(others_.critic != nullptr, "a critic has a network");
    others_.critic->set_recompute(config_.recompute);
    critic_.emplace(std::move(others_.critic), *config_.critic, mesh);
  }
  network_.set_recompute(config_.recompute);
  // Marks are of the network's own weights; gradients of adapters are few and come at the end.
  if (!mesh.dp().is_alone() && network_.adapters() == nullptr) {
    optimizer_.reduction().set_marks(network_.gradient_marks(), config_.bucket_elements);
    network_.on_gradients([this](int64_t begin) { optimizer_.reduction().complete_from(begin); });
  }
}

Trainer::~Trainer() {
  if (!mesh_.dp().is_alone()) network_.on_gradients({});
}

void Trainer::release_gradients() {
  network_.trained().release_grad();
  if (critic_) critic_->network().weights().release_grad();
}

void Trainer::wait_for_optimizers() {
  optimizer_.wait();
  if (!critic_) return;
  critic_->network_optimizer().wait();
  critic_->head_optimizer().wait();
}

void Trainer::weights_published() {
  if (!config_.keep_old_actor) return;
  const Tensor& actor = network_.trained().flat();
  const Tensor& old_actor = others_.old_actor->trained().flat();
  if (config_.update_weights_interval == 1) {
    old_actor.copy_(rollout_actor_);
    rollout_actor_.copy_(actor);
  } else {
    old_actor.copy_(actor);
  }
}

PlanOptions Trainer::plan_options() const {
  PlanOptions options = plan_options_of(config_, network_);
  // Stages know their own layers alone, and have to pack alike.
  if (mesh_.pp().is_alone()) options.packing.level_cost = level_cost_of(network_);
  return options;
}

bool Trainer::has_experts() const { return network_.config().has_experts(); }

TrainReport Trainer::train(const TrainBatch& batch) {
  const auto start = clock_.now();
  TrainReport report = train_planned(batch, plan_steps(batch, plan_options(), flops_), start);
  report.samples_of_steps =
      split_into_steps(batch.rollout_ids(), config_.batching.global_batch_size);
  return report;
}

std::vector<BatchShare> Trainer::divide(const TrainBatch& batch) const {
  return train::divide(batch, plan_options(), flops_);
}

std::vector<BatchShare> divide(const TrainBatch& batch, const TrainConfig& config,
                               model::Network& network) {
  return divide(batch, plan_options_of(config, network), flops_model_of(network));
}

TrainReport Trainer::train(const BatchShare& share) {
  const auto start = clock_.now();
  return train_planned(share.batch, plan_share(share, plan_options()), start);
}

TrainReport Trainer::train_planned(const TrainBatch& batch, std::vector<StepPlan> plans,
                                   Clock::TimePoint start) {
  TrainReport report;
  const std::vector<int64_t> lengths = lengths_of(batch, plans);
  double tokens[2] = {};
  for (const int64_t length : lengths) tokens[0] += static_cast<double>(length);
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      tokens[1] += static_cast<double>(micro_batch.packed.tokens.num_tokens());
    }
  }
  const std::vector<double> all_tokens = sum(ranks_, tokens, "counting tokens");
  report.num_tokens = static_cast<int64_t>(all_tokens[0]);
  report.num_computed_tokens = static_cast<int64_t>(all_tokens[1]);
  report.perf["perf/data_preprocess_time"] = seconds_between(start, clock_.now());

  if (batch.is_scored_only) {
    TokenColumn log_probs(batch.samples.size());
    score_into(network_, Scores::kOfPolicy, plans, log_probs, nullptr);
    for (std::size_t i = 0; i < batch.samples.size(); ++i)
      report.log_probs.push_back(floats_of(log_probs.of(i)));
    return report;
  }
  Columns columns = prepare(batch, plans, report);
  report.rollout = rollout_metrics(batch, plans, columns, ranks_);
  if (critic_)
    report.rollout["rollout/value_explained_variance"] = explained_variance(plans, columns, ranks_);

  const auto train_start = clock_.now();
  if (config_.reset_optimizer_states) {
    ++num_changes_;
    optimizer_.reset();
    if (critic_) critic_->reset_optimizers();
  }
  const bool trains_actor =
      !critic_ || state_.rollouts_done >= critic_->config().num_critic_only_steps;
  for (const StepPlan& plan : plans) {
    StepReport step;
    num_changes_ += critic_ ? 1 : 0;
    if (critic_) step = train_critic_step(batch, plan, columns);
    report.steps.push_back(std::move(step));
    if (state_.critic_skipped_in_a_row <= config_.max_skipped_steps) continue;
    report.stopped = fmt::format(
        "training stopped after {} steps in a row in which the critic had no finite "
        "gradients",
        state_.critic_skipped_in_a_row);
    break;
  }
  if (!report.stopped.empty()) plans.resize(report.steps.size());
  for (std::size_t i = 0; i < plans.size() && trains_actor; ++i) {
    StepReport step = train_step(batch, plans[i], static_cast<int64_t>(i), columns);
    ++state_.num_steps;
    step.metrics.merge(report.steps[i].metrics);
    step.critic_skipped = std::move(report.steps[i].critic_skipped);
    report.steps[i] = std::move(step);
    if (state_.skipped_in_a_row <= config_.max_skipped_steps) continue;
    report.stopped =
        fmt::format("training stopped after {} steps in a row without finite gradients",
                    state_.skipped_in_a_row);
    report.steps.resize(i + 1);
    break;
  }
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    report.log_probs.push_back(
        floats_of(columns.old.of(i).defined() ? columns.old.of(i) : columns.seen.of(i)));
  }
  report.advantages = mean_advantages(batch, columns);
  wait_for(network_.weights().flat());
  // On GPUs collectives fail behind the calls: nobody reads weights that did not arrive.
  mesh_.world().barrier("the new weights");
  const double seconds = seconds_between(train_start, clock_.now());
  report.perf["perf/actor_train_time"] = seconds;
  const double flops_per_second = 3 * forward_flops(flops_, lengths) / seconds;
  report.perf["perf/actor_train_tflops"] = flops_per_second / 1e12;
  if (const auto peak = peak_flops_of(network_.weights().flat()))
    report.perf["perf/actor_train_mfu"] = flops_per_second / *peak;
  report.perf["perf/actor_train_tok_per_s"] = static_cast<double>(report.num_tokens) / seconds;

  ++state_.rollouts_done;
  if (others_.reference != nullptr && config_.ref_update_interval > 0 &&
      state_.rollouts_done % config_.ref_update_interval == 0) {
    const auto update_start = clock_.now();
    others_.reference->weights().copy_from(network_.weights());
    wait_for(network_.weights().flat());
    report.perf["perf/ref_model_update_time"] = seconds_between(update_start, clock_.now());
  }
  report.perf["perf/train_time"] = seconds_between(start, clock_.now());
  return report;
}

algo::Loss Trainer::loss_of(const TrainBatch& batch, const MicroBatch& micro_batch,
                            const ScoredPass& pass, const Tensor& advantage_T,
                            const Columns& columns) {
  const kernels::LogProbs& scores = pass.scores;
  if (config_.objective == Objective::kSupervised)
    return algo::supervised_loss(scores.logprob_R, micro_batch.weight_T);
  if (config_.objective == Objective::kPreference) {
    return algo::preference_loss(config_.preference,
                                 {scores.logprob_R, columns.ref.gather(micro_batch.samples),
                                  micro_batch.trained_T, micro_batch.starts});
  }
  const algo::PolicyColumns in = policy_columns(scores, micro_batch, advantage_T, columns);
  if (config_.users_loss) return users_loss(batch, micro_batch, pass, in, columns);
  if (!config_.policy_functions) return algo::policy_loss(config_.policy, in);
  const auto weights = [&](const Tensor& kept_T) {
    return token_weights_of(batch, micro_batch, kept_T);
  };
  return algo::policy_loss(config_.policy, in,
                           config_.policy_functions(batch, micro_batch, weights));
}

kernels::LinearLogProbOptions Trainer::score_options(const Tensor& hidden_LH) const {
  kernels::LinearLogProbOptions options{.temperature = config_.temperature,
                                        .entropy_gradient = config_.policy.entropy_coef != 0};
  // A loss of the user's may ask for all logits itself.
  if (!config_.keeps_logits || config_.users_loss || mesh_.pp().size() > 1 || hidden_LH.is_cpu())
    return options;
  options.kept_bytes = kept_logits_now(
      network_.config(), hidden_LH, config_.replays_top_p || config_.policy.centering.has_value());
  options.keeps_some = true;
  return options;
}

algo::MetricSums Trainer::accumulate(const TrainBatch& batch, const StepPlan& plan,
                                     Columns& columns, std::vector<std::string>& problems,
                                     bool reduces) {
  const kernels::TraceRange range("forward and backward");
  algo::MetricSums sums;
  std::vector<PipelineItem> items;
  std::optional<std::size_t> last;  // with a backward
  routing_.clear();
  RoutingOfPass asked;
  if (has_experts()) {
    asked.replays = config_.routing_replay != TrainConfig::RoutingReplay::kNone;
    asked.losses = config_.router_losses;
    asked.gradient_scale = plan.denominator / static_cast<double>(plan.num_micro_batches);
    routing_.assign(plan.micro_batches.size(), asked);  // of which items point at theirs
  }
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    if (!micro_batch.has_response()) continue;
    const Tensor advantage_T = columns.advantage.gather(micro_batch.samples);
    // A loss of the user's says itself that it has no gradient.
    const bool trains = config_.users_loss || asked.losses.is_on() || config_.draft_loss_scale ||
                        !zero_advantage_is_inert(config_) ||
                        advantage_T.count_nonzero().item<int64_t>() > 0;
    if (trains) last = items.size();
    items.push_back({&micro_batch, trains, has_experts() ? &routing_[items.size()] : nullptr});
  }
  if (has_experts()) routing_.resize(items.size());
  run_pipeline(
      network_, mesh_, items, [&](std::size_t i, const Pass& on_its_way, const Tensor& hidden_LH) {
        const MicroBatch& micro_batch = *items[i].micro_batch;
        const ScoredPass pass{hidden_LH,
                              on_its_way.log_probs(hidden_LH, score_options(hidden_LH),
                                                   config_.policy.centering.has_value())};
        columns.seen.put(micro_batch, pass.scores.logprob_R.detach());
        const algo::Loss loss = loss_of(batch, micro_batch, pass,
                                        columns.advantage.gather(micro_batch.samples), columns);
        const double value = loss.metrics.at("loss");
        if (!std::isfinite(value))
          problems.push_back(describe_bad_loss(batch, micro_batch, pass, columns, value));
        add(sums, loss.metrics);
        // Before the backward of the pass: ranks sum gradients as those of the last layers are complete.
        if (config_.draft_loss_scale)
          add(sums, {{"mtp_loss", train_draft_layer(micro_batch, hidden_LH, plan, problems)}});
        if (reduces && last == i) optimizer_.reduction().begin_last_backward();
        return loss.sum;
      });
  return sum(mesh_.pp(), sums, "metrics of the last stage");
}

double Trainer::train_draft_layer(const MicroBatch& micro_batch, const Tensor& hidden_LH,
                                  const StepPlan& plan, std::vector<std::string>& problems) {
  // Gradients and metrics are divided by the denominator later, this loss is by its own predictions.
  const double each = plan.denominator / static_cast<double>(plan.num_predictions);
  const double loss = accumulate_draft_gradients(network_, micro_batch, hidden_LH,
                                                 *config_.draft_loss_scale * each);
  if (!std::isfinite(loss)) problems.push_back("the loss of the draft layer is not finite");
  return loss * each;
}

StepReport Trainer::train_step(const TrainBatch& batch, const StepPlan& plan, int64_t place,
                               Columns& columns) {
  StepReport report;
  report.step = state_.num_steps;
  if (model::Adapters* adapters = network_.adapters()) adapters->begin_step(state_.num_steps);
  network_.trained().enable_grad();
  network_.trained().zero_grad();
  if (config_.before_train_step) config_.before_train_step(state_.rollouts_done, place);
  std::vector<std::string> problems;
  algo::MetricSums own = accumulate(batch, plan, columns, problems, true);
  // Weights are those that the engine drew with until the first step of a batch.
  if (config_.true_on_policy && place == 0) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      if (micro_batch.has_response())
        check_log_probs(batch, micro_batch, columns.engine,
                        columns.seen.gather(micro_batch.samples));
    }
  }
  own[kWithoutEngine] = share_without(columns.engine, batch, plan, config_.reduction);
  algo::MetricSums sums = sum(ranks_, own, "metrics of the step");
  const double without_engine = sums.extract(kWithoutEngine).mapped();
  optimizer_.reduce_gradients();
  for (const model::NamedWeight& weight : network_.trained().tensors()) {
    if (std::ranges::find(config_.frozen, weight.name) != config_.frozen.end())
      model::Weights::view(network_.trained().grad(), weight).zero_();  // counts in no norm
  }
  for (const auto& [name, value] : sums) report.metrics["train/" + name] = value / plan.denominator;
  scale_difference(report.metrics, plan.denominator, without_engine);
  RouterSums routers;
  if (has_experts()) {
    routers = router_sums(routing_, network_.config(), mesh_);
    report.metrics.merge(
        router_metrics(routers, network_.config(), config_.router_losses, plan.num_micro_batches));
    routing_.clear();
  }

  const double norm = std::sqrt(optimizer_.gradient_squares()) / plan.denominator;
  const double lr = learning_rate(config_.lr, state_.samples_done);
  report.metrics["train/grad_norm"] = norm;
  report.metrics["train/lr-pg_0"] = lr;
  report.metrics["train/global_batch_size"] = static_cast<double>(plan.num_executions);
  if (!std::isfinite(norm)) {
    ++state_.skipped_in_a_row;
    const std::string names = name_bad_gradients(network_.trained());
    // Of this rank's samples; pipeline stages and tensor-parallel ranks decide alike.
    const bool is_known =
        sum(mesh_.model(), static_cast<double>(problems.size()), "counting what is not finite") > 0;
    const std::string traced = is_known ? "" : trace_gradients(batch, plan, columns);
    if (!names.empty() && (is_known || !traced.empty() || ranks_.is_alone()))
      problems.push_back("gradients that are not finite: " + names);
    if (!traced.empty()) problems.push_back(traced);
    report.skipped = join_problems(problems);
    return report;
  }
  state_.skipped_in_a_row = 0;
  // Megatron's form: a norm at the limit is scaled too, by less than a millionth.
  const double clip =
      config_.clip_grad > 0 ? std::min(1.0, config_.clip_grad / (norm + 1e-6)) : 1.0;
  ++num_changes_;
  if (config_.stateless_adam) optimizer_.reset();
  optimizer_.step(lr, config_.lr.weight_decay, clip / plan.denominator);
  if (has_experts() && config_.router_bias_update_rate != 0)
    update_selection_biases(network_.weights(), network_.config(), routers.visits_YE,
                            config_.router_bias_update_rate);
  state_.samples_done += plan.num_executions;
  return report;
}

algo::MetricSums Trainer::accumulate_gradients(const TrainBatch& batch) {
  std::vector<StepPlan> plans;
  plans.push_back(plan_pass(batch.samples, plan_options()));
  TrainReport ignored;
  Columns columns = prepare(batch, plans, ignored);
  network_.trained().enable_grad();
  network_.trained().zero_grad();
  std::vector<std::string> problems;
  return accumulate(batch, plans.front(), columns, problems, false);
}

algo::MetricSums Trainer::accumulate_gradients(const BatchShare& share) {
  std::vector<StepPlan> plans = plan_share(share, plan_options());
  check(plans.size() == 1, "a share of one training step");
  TrainReport ignored;
  Columns columns = prepare(share.batch, plans, ignored);
  network_.trained().enable_grad();
  network_.trained().zero_grad();
  std::vector<std::string> problems;
  const algo::MetricSums sums = accumulate(share.batch, plans.front(), columns, problems, true);
  optimizer_.reduce_gradients();
  return sum(ranks_, sums, "metrics of the step");
}

TrainerState Trainer::state() const {
  TrainerState state = state_;
  state.num_updates = optimizer_.num_steps();
  if (critic_) state.critic = critic_->state();
  return state;
}

void Trainer::set_state(const TrainerState& state) {
  state_ = state;
  optimizer_.set_num_steps(state.num_updates);
  if (critic_) critic_->set_state(state.critic);
}

}  // namespace slime::train
