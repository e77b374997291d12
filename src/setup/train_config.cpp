#include "setup/train_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/advantage_estimators.h"
#include "core/error.h"
#include "setup/evaluation_plan.h"

namespace slime::setup {
namespace {

algo::AdvantageConfig make_advantage(const config::RunConfig& config) {
  switch (config::advantage_estimator_of(config.advantage_estimator.get()).advantages) {
    using enum config::AdvantageEstimator::Advantages;
    case kGae:
      return algo::Gae{.gamma = config.gamma, .lambda = config.lambd, .kl_coef = config.kl_coef};
    case kReinforcePlusPlus:
      return algo::ReinforcePlusPlus{.gamma = config.gamma, .kl_coef = config.kl_coef};
    case kReinforceBaseline:
      return algo::ReinforceBaseline{.kl_coef = config.kl_coef};
    case kGroupRelative:
      return algo::GroupRelative{};
  }
  throw BugError("an advantage without a case");
}

algo::PolicyObjective make_objective(const config::RunConfig& config) {
  if (config.is_reinforce()) return algo::Reinforce{};
  const double high = config.eps_clip_high.value_or(config.eps_clip.get());
  switch (config::advantage_estimator_of(config.advantage_estimator.get()).objective) {
    using enum config::AdvantageEstimator::Objective;
    case kSequenceClip:
      return algo::SequenceClip{config.eps_clip, high, config.eps_clip_c};
    case kClippedWeight:
      return algo::ClippedWeight{config.eps_clip, high};
    case kTokenClip:
      return algo::TokenClip{config.eps_clip, high, config.eps_clip_c};
  }
  throw BugError("an objective without a case");
}

algo::ImportanceAndRejection make_mis(const config::RunConfig& config) {
  algo::ImportanceAndRejection mis;
  mis.weighs = config.use_tis;
  if (!mis.weighs) return mis;  // metrics of the ratios alone
  mis.level = algo::ratio_level_from_string(config.tis_level, "--tis-level");
  mis.mode = algo::bound_mode_from_string(config.tis_mode, "--tis-mode");
  mis.upper = config.tis_upper_bound;
  const bool rejects_by_it = config.use_rs && !config.rs_lower_bound;
  if (mis.mode != algo::BoundMode::kTruncate || rejects_by_it) mis.lower = config.tis_lower_bound;
  mis.batch_normalize = config.tis_batch_normalize;
  if (config.use_rs) {
    mis.rejection =
        algo::Rejection{.level = algo::ratio_level_from_string(config.rs_level, "--rs-level"),
                        .lower = config.rs_lower_bound,
                        .upper = config.rs_upper_bound,
                        .veto_threshold = config.rs_veto_threshold};
  }
  return mis;
}

std::optional<algo::MismatchCorrection> make_correction(const config::RunConfig& config) {
  if (!config.use_tis && !config.get_mismatch_metrics) return std::nullopt;
  if (config.uses_mis()) return make_mis(config);
  if (config.uses_icepop())
    return algo::DroppedImportance{.low = config.tis_clip_low, .high = config.tis_clip};
  if (!config.users_correction().empty()) return std::nullopt;
  return algo::TruncatedImportance{.low = config.tis_clip_low, .high = config.tis_clip};
}

algo::PolicyLossConfig make_policy_loss(const config::RunConfig& config) {
  algo::PolicyLossConfig policy;
  policy.objective = make_objective(config);
  policy.entropy_coef = config.entropy_coef;
  if (config.use_kl_loss) {
    policy.kl_loss = algo::KlLoss{.type = algo::kl_type_from_string(config.kl_loss_type),
                                  .coef = config.kl_loss_coef,
                                  .unbiased = config.use_unbiased_kl};
  }
  if (config.use_opsm)
    policy.off_policy_masking = algo::OffPolicyMasking{.delta = config.opsm_delta};
  policy.correction = make_correction(config);
  policy.reports_mismatch = config.get_mismatch_metrics && !config.use_tis;
  if (config.use_score_centering) {
    policy.centering = algo::ScoreCentering{.lists_support = config.rollout_top_p < 1};
    if (!policy.centering->lists_support)
      policy.centering->num_listed = config.score_centering_top_k;
  }
  policy.policy_divisor = config.policy_loss_divisor;
  policy.use_rollout_logprobs = config.use_rollout_logprobs;
  return policy;
}

train::BatchingConfig make_batching(const config::RunConfig& config) {
  train::BatchingConfig batching;
  batching.global_batch_size = config.samples_per_step();
  batching.use_dynamic_batch_size = config.use_dynamic_batch_size;
  if (config.use_dynamic_batch_size) {
    // Of a micro-batch each context-parallel rank has a share of the rows.
    batching.max_tokens_per_gpu =
        config.max_tokens_per_gpu.value_or(0) * config.context_parallel_size;
    batching.balance_by_flops = config.balance_by_flops;
  } else {
    batching.micro_batch_size = config.micro_batch_size;
  }
  batching.balance_data = config.balance_data;
  batching.dp = config.data_parallel_size();
  batching.micro_batch_group = config.micro_batch_group();
  return batching;
}

/// Optimizer steps of the run.
int64_t planned_steps(const config::RunConfig& config, int64_t num_rollouts) {
  return std::max<int64_t>(1,
                           num_rollouts * config.samples_per_rollout() / config.samples_per_step());
}

/// A warm-up ends before the decay does, one step at least.
int64_t longest_warmup(const config::RunConfig& config, int64_t num_rollouts) {
  return std::max<int64_t>(0,
                           config.lr_decay_iters.value_or(planned_steps(config, num_rollouts)) - 1);
}

train::LrSchedule make_lr(const config::RunConfig& config, int64_t num_rollouts) {
  train::LrSchedule schedule;
  schedule.lr = config.lr;
  schedule.style = train::decay_style_from_string(config.lr_decay_style);
  const bool decays = schedule.style != train::DecayStyle::kConstant;
  const bool warms_up = config.lr_warmup_fraction || config.lr_warmup_iters != 0;
  train::LrIterations iterations{.lr_warmup_iters = config.lr_warmup_iters,
                                 .lr_warmup_fraction = config.lr_warmup_fraction};
  if (decays) schedule.min_lr = config.min_lr;
  if (warms_up) schedule.init_lr = config.lr_warmup_init;
  if (decays || warms_up) iterations.lr_decay_iters = config.lr_decay_iters;
  if (schedule.style == train::DecayStyle::kWsd) {
    schedule.wsd_style = train::wsd_style_from_string(config.lr_wsd_decay_style);
    iterations.lr_wsd_decay_iters = config.lr_wsd_decay_iters.value_or(0);
  }
  schedule.weight_decay = config.weight_decay;
  iterations.train_iters = planned_steps(config, num_rollouts);
  if (warms_up) {
    iterations.lr_warmup_iters =
        std::min(iterations.lr_warmup_iters, longest_warmup(config, num_rollouts));
  }
  return train::with_iterations(schedule, iterations, config.samples_per_step());
}

train::AdamConfig make_adam(const config::RunConfig& config, bool is_on_gpu) {
  return {.beta1 = config.adam_beta1,
          .beta2 = config.adam_beta2,
          .eps = config.adam_eps,
          .on_host = is_on_gpu && config.optimizer_cpu_offload};
}

/// The critic's flags with the actor's batches.
config::RunConfig schedule_of_critic(const config::RunConfig& actor) {
  config::RunConfig schedule = actor.critic != nullptr ? *actor.critic : actor;
  schedule.rollout_batch_size = actor.rollout_batch_size;
  schedule.n_samples_per_prompt = actor.n_samples_per_prompt;
  schedule.global_batch_size = actor.global_batch_size;
  return schedule;
}

train::CriticConfig make_critic(const config::RunConfig& actor, int64_t num_rollouts) {
  const config::RunConfig& config = actor.critic != nullptr ? *actor.critic : actor;
  train::CriticConfig critic;
  critic.value_clip = config.value_clip;
  critic.adam = make_adam(config, actor.device != "cpu");
  critic.lr = make_lr(schedule_of_critic(actor), num_rollouts);
  critic.clip_grad = config.clip_grad;
  critic.init_std = config.init_method_std;
  critic.seed = static_cast<uint64_t>(config.seed);
  critic.num_critic_only_steps = actor.num_critic_only_steps;
  return critic;
}

train::Objective make_train_objective(const config::RunConfig& config) {
  if (config.has_sft_loss()) return train::Objective::kSupervised;
  return config.is_preference() ? train::Objective::kPreference : train::Objective::kPolicy;
}

model::RouterLosses make_router_losses(const config::RunConfig& config) {
  using Balance = model::RouterLosses::Balance;
  model::RouterLosses losses;
  if (config.moe_router_load_balancing_type == "aux_loss") losses.balance = Balance::kMicroBatch;
  if (config.moe_router_load_balancing_type == "seq_aux_loss") losses.balance = Balance::kSequence;
  if (losses.balance != Balance::kNone) losses.balance_coef = config.moe_aux_loss_coeff;
  losses.z_coef = config.moe_z_loss_coeff;
  return losses;
}

}  // namespace

bool keeps_logits(const config::RunConfig& config) {
  const bool is_alone =
      config.has_device_in_turns() || (config.num_engine_workers > 0 && !config.colocate);
  return is_alone && !evaluates_beside(config) && config.pipeline_model_parallel_size == 1 &&
         config.custom_loss_function_path.empty() && config.custom_loss_library.empty();
}

namespace {

/// `whose`: "" or the critic's flags.
std::vector<std::string> warmup_notes(const config::RunConfig& config, int64_t num_rollouts,
                                      std::string_view whose) {
  if (config.lr_warmup_iters == 0) return {};
  const int64_t longest = longest_warmup(config, num_rollouts);
  if (config.lr_warmup_iters <= longest) return {};
  return {fmt::format("{}--lr-warmup-iters {}: the {} has {} steps, so the warm-up takes {}", whose,
                      config.lr_warmup_iters, config.lr_decay_iters ? "decay" : "run", longest + 1,
                      longest)};
}

}  // namespace

std::vector<std::string> schedule_notes(const config::RunConfig& config, int64_t num_rollouts) {
  std::vector<std::string> notes;
  const auto add = [&](std::string note) { notes.push_back(std::move(note)); };
  if (config.profile && config.profile_step_start >= num_rollouts) {
    add(
        fmt::format("--profile: nothing is traced, the run has {} rollouts and "
                    "--profile-step-start is {}",
                    num_rollouts, config.profile_step_start));
  }
  if (config.debug_rollout_only) return notes;
  const auto append = [&](const std::vector<std::string>& more) {
    notes.insert(notes.end(), more.begin(), more.end());
  };
  append(warmup_notes(config, num_rollouts, ""));
  if (config.has_critic()) {
    if (config.critic != nullptr) {
      append(warmup_notes(schedule_of_critic(config), num_rollouts,
                          "--megatron-config-path: critic: "));
    }
    if (config.num_critic_only_steps >= num_rollouts) {
      add(
          fmt::format("--num-critic-only-steps {}: the run has {} rollouts, so the actor is never "
                      "trained",
                      config.num_critic_only_steps, num_rollouts));
    }
  }
  if (config.ref_update_interval.value_or(0) > num_rollouts) {
    add(
        fmt::format("--ref-update-interval {}: the run has {} rollouts, so the reference is never "
                    "updated",
                    *config.ref_update_interval, num_rollouts));
  }
  if (config.generates() && config.has_update_interval() &&
      config.update_weights_interval > num_rollouts) {
    add(
        fmt::format("--update-weights-interval {}: the run has {} rollouts, so the engine never "
                    "gets new weights",
                    config.update_weights_interval, num_rollouts));
  }
  return notes;
}

train::TrainConfig make_train_config(const config::RunConfig& config, int64_t num_rollouts,
                                     bool has_experts) {
  train::TrainConfig trainer;
  trainer.objective = make_train_objective(config);
  if (config.has_advantages()) trainer.advantage = make_advantage(config);
  if (config.has_critic()) trainer.critic = make_critic(config, num_rollouts);
  if (config.use_opd) trainer.distillation_coef = config.opd_kl_coef;
  trainer.has_teacher_model = config.use_opd && config.opd_type == "megatron";
  if (config.is_preference())
    trainer.preference = {.beta = config.dpo_beta, .label_smoothing = config.dpo_label_smoothing};
  trainer.keep_old_actor = config.has_advantages() && config.keep_old_actor;
  if (config.has_update_interval())
    trainer.update_weights_interval = config.update_weights_interval;
  using Replay = train::TrainConfig::RoutingReplay;
  if (config.has_advantages() && config.use_rollout_routing_replay) {
    trainer.routing_replay = Replay::kEngine;
  } else if (config.has_advantages() && config.use_routing_replay) {
    trainer.routing_replay = Replay::kOldPass;
  }
  if (has_experts) trainer.router_losses = make_router_losses(config);
  // Megatron's default, which recipes of reinforcement learning set to 0.
  if (has_experts && config.moe_router_enable_expert_bias)
    trainer.router_bias_update_rate = config.moe_router_bias_update_rate.value_or(1e-3);
  if (trainer.router_bias_update_rate != 0 && trainer.keep_old_actor)
    throw ConfigError(
        fmt::format("--moe-router-bias-update-rate {}: --keep-old-actor keeps weights alone, and "
                    "biases would not be those of the old policy; use a rate of 0",
                    trainer.router_bias_update_rate));
  if (config.enable_mtp_training) trainer.draft_loss_scale = config.mtp_loss_scaling_factor;
  trainer.true_on_policy = config.has_advantages() && config.true_on_policy;
  trainer.orders_backward = config.is_on_gpus() && config.deterministic_mode;
  trainer.replays_top_p = config.has_advantages() && config.rollout_top_p < 1;
  trainer.stateless_adam = config.use_stateless_adam;
  trainer.reset_optimizer_states = config.reset_optimizer_states;
  if (config.has_advantages()) {
    if (config.needs_reference()) trainer.kl_type = algo::kl_type_from_string(config.kl_loss_type);
    trainer.normalize_advantages = config.normalize_advantages;
    trainer.policy = make_policy_loss(config);
  }
  trainer.reduction =
      config.calculate_per_token_loss ? algo::Reduction::kPerToken : algo::Reduction::kPerRollout;
  trainer.temperature = config.rollout_temperature;
  trainer.batching = make_batching(config);
  trainer.packing.share_prefixes = !config.no_prefix_sharing;
  if (!config.recompute_granularity.empty()) {
    trainer.recompute = config.recompute_granularity == "selective" ? model::Recompute::kSelective
                                                                    : model::Recompute::kFull;
  }
  trainer.keeps_logits = keeps_logits(config);
  trainer.adam = make_adam(config, config.device != "cpu");
  trainer.lr = make_lr(config, num_rollouts);
  trainer.clip_grad = config.clip_grad;
  trainer.ref_update_interval = config.ref_update_interval.value_or(0);
  return trainer;
}

train::TrainBatchConfig make_batch_config(const config::RunConfig& config) {
  train::TrainBatchConfig batch;
  using Baseline = config::AdvantageEstimator::Baseline;
  const Baseline baseline =
      config::advantage_estimator_of(config.advantage_estimator.get()).baseline;
  if (baseline == Baseline::kNone || config.disable_rewards_normalization) {
    batch.rewards = algo::RewardNormalization::kNone;
  } else if (baseline == Baseline::kLeaveOneOut) {
    batch.rewards = algo::RewardNormalization::kLeaveOneOut;
  } else if (baseline == Baseline::kMean || config.disable_grpo_std_normalization) {
    batch.rewards = algo::RewardNormalization::kMean;
  } else {
    batch.rewards = algo::RewardNormalization::kMeanAndStd;
  }
  batch.reward_key = config.reward_key;
  if (config.overlong_buffer_len) {
    batch.overlong =
        algo::OverlongPenalty{.max_length = config.rollout_max_response_len.value_or(0),
                              .buffer = *config.overlong_buffer_len,
                              .factor = config.overlong_penalty_factor};
  }
  return batch;
}

namespace {

/// With rewards, which are for metrics alone.
train::TrainBatch make_imitation_batch(const std::vector<Group>& groups,
                                       const std::string& reward_key) {
  train::TrainBatch batch = train::make_imitation_batch(groups);
  auto trained = batch.samples.begin();
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      if (!sample.reward.is_null())
        trained->reward = trained->raw_reward = sample.reward_value(reward_key);
      ++trained;
    }
  }
  return batch;
}

}  // namespace

train::TrainBatch make_batch(const std::vector<Group>& groups, const config::RunConfig& config) {
  if (config.is_preference()) return train::make_preference_batch(groups);
  if (config.imitates_samples) return make_imitation_batch(groups, config.reward_key);
  if (!config.is_supervised()) return train::make_train_batch(groups, make_batch_config(config));
  std::vector<Sample> samples;
  for (const Group& group : groups)
    samples.insert(samples.end(), group.samples.begin(), group.samples.end());
  return train::make_supervised_batch(samples);
}

}  // namespace slime::setup
