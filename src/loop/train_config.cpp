#include "loop/train_config.h"

#include <algorithm>

#include "core/error.h"

namespace slime::loop {
namespace {

algo::AdvantageConfig make_advantage(const RunConfig& config) {
  const std::string& word = config.advantage_estimator;
  if (word == "reinforce_plus_plus") return algo::ReinforcePlusPlus{.gamma = config.gamma, .kl_coef = config.kl_coef};
  if (word == "reinforce_plus_plus_baseline") return algo::ReinforceBaseline{.kl_coef = config.kl_coef};
  return algo::GroupRelative{};
}

algo::PolicyObjective make_objective(const RunConfig& config) {
  const double high = config.eps_clip_high.value_or(config.eps_clip);
  if (config.advantage_estimator == "gspo") return algo::SequenceClip{config.eps_clip, high, config.eps_clip_c};
  if (config.advantage_estimator == "cispo") return algo::ClippedWeight{config.eps_clip, high};
  return algo::TokenClip{config.eps_clip, high, config.eps_clip_c};
}

algo::PolicyLossConfig make_policy_loss(const RunConfig& config) {
  algo::PolicyLossConfig policy;
  policy.objective = make_objective(config);
  policy.entropy_coef = config.entropy_coef;
  if (config.use_kl_loss) {
    policy.kl_loss = algo::KlLoss{.type = algo::kl_type_from_string(config.kl_loss_type),
                                  .coef = config.kl_loss_coef,
                                  .unbiased = config.use_unbiased_kl};
  }
  if (config.use_opsm) policy.off_policy_masking = algo::OffPolicyMasking{.delta = config.opsm_delta};
  if (config.use_tis) policy.correction = algo::TruncatedImportance{.low = config.tis_clip_low, .high = config.tis_clip};
  policy.use_rollout_logprobs = config.use_rollout_logprobs;
  return policy;
}

train::BatchingConfig make_batching(const RunConfig& config) {
  train::BatchingConfig batching;
  batching.global_batch_size = config.samples_per_step();
  batching.micro_batch_size = config.micro_batch_size;
  batching.use_dynamic_batch_size = config.use_dynamic_batch_size;
  batching.max_tokens_per_gpu = config.max_tokens_per_gpu.value_or(0);
  batching.balance_data = config.balance_data;
  batching.balance_by_flops = config.balance_by_flops;
  return batching;
}

train::LrSchedule make_lr(const RunConfig& config, int64_t num_rollouts) {
  train::LrSchedule schedule;
  schedule.lr = config.lr;
  schedule.min_lr = config.min_lr;
  schedule.init_lr = config.lr_warmup_init;
  schedule.style = train::decay_style_from_string(config.lr_decay_style);
  schedule.start_weight_decay = config.weight_decay;
  schedule.end_weight_decay = config.weight_decay;
  const int64_t train_iters = std::max<int64_t>(1, num_rollouts * config.samples_per_rollout() / config.samples_per_step());
  return train::with_iterations(schedule,
                                {.train_iters = train_iters,
                                 .lr_decay_iters = config.lr_decay_iters,
                                 .lr_warmup_iters = config.lr_warmup_iters,
                                 .lr_warmup_fraction = config.lr_warmup_fraction},
                                config.samples_per_step());
}

}  // namespace

train::TrainConfig make_train_config(const RunConfig& config, int64_t num_rollouts) {
  train::TrainConfig trainer;
  trainer.objective = config.is_supervised() ? train::Objective::kSupervised : train::Objective::kPolicy;
  trainer.advantage = make_advantage(config);
  trainer.kl_type = algo::kl_type_from_string(config.kl_loss_type);
  trainer.normalize_advantages = config.normalize_advantages;
  trainer.policy = make_policy_loss(config);
  trainer.reduction = config.calculate_per_token_loss ? algo::Reduction::kPerToken : algo::Reduction::kPerRollout;
  trainer.temperature = config.rollout_temperature;
  trainer.batching = make_batching(config);
  trainer.packing.share_prefixes = !config.no_prefix_sharing;
  trainer.recompute = !config.recompute_granularity.empty();
  trainer.adam = {.beta1 = config.adam_beta1, .beta2 = config.adam_beta2, .eps = config.adam_eps};
  trainer.lr = make_lr(config, num_rollouts);
  trainer.clip_grad = config.clip_grad;
  trainer.ref_update_interval = config.ref_update_interval.value_or(0);
  return trainer;
}

train::TrainBatchConfig make_batch_config(const RunConfig& config) {
  train::TrainBatchConfig batch;
  const std::string& estimator = config.advantage_estimator;
  if (config.disable_rewards_normalization || estimator == "reinforce_plus_plus") {
    batch.rewards = algo::RewardNormalization::kNone;
  } else if (estimator == "reinforce_plus_plus_baseline" || config.disable_grpo_std_normalization) {
    batch.rewards = algo::RewardNormalization::kMean;
  } else {
    batch.rewards = algo::RewardNormalization::kMeanAndStd;
  }
  batch.reward_key = config.reward_key;
  return batch;
}

}  // namespace slime::loop
