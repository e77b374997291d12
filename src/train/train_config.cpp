#include "core/error.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

bool has_whitened_advantages(const algo::AdvantageConfig& advantage) {
  return std::holds_alternative<algo::ReinforcePlusPlus>(advantage) ||
         std::holds_alternative<algo::ReinforceBaseline>(advantage);
}

/// eps_clip_c of the objectives that have one.
std::optional<double> dual_clip(const algo::PolicyObjective& objective) {
  return std::visit(
      [](const auto& how) -> std::optional<double> {
        if constexpr (requires { how.dual; }) return how.dual;
        return std::nullopt;
      },
      objective);
}

void check_batching(const BatchingConfig& batching) {
  check(batching.global_batch_size >= 1, "a training step has a sample");
  if (batching.use_dynamic_batch_size) {
    check(batching.max_tokens_per_gpu >= 1, "a micro-batch has a budget of tokens");
  } else {
    check(batching.micro_batch_size >= 1, "a micro-batch has a sample");
    check(!batching.balance_by_flops, "micro-batches are balanced where they are packed by tokens");
  }
}

}  // namespace

bool needs_reference(const TrainConfig& config) {
  if (config.objective == Objective::kSupervised) return false;
  if (config.objective == Objective::kPreference) return true;
  return config.policy.kl_loss.has_value() || algo::kl_coef_of(config.advantage) != 0;
}

void check_config(const TrainConfig& config) {
  check(config.temperature > 0, "log-probs are divided by a temperature above 0");
  check(algo::kl_coef_of(config.advantage) == 0 || !config.policy.kl_loss ||
            config.policy.kl_loss->coef == 0,
        "the divergence is in the advantages or in the loss");
  check(!has_whitened_advantages(config.advantage) || config.normalize_advantages,
        "advantages of reinforce_plus_plus are whitened");
  check(std::holds_alternative<algo::Gae>(config.advantage) == config.critic.has_value(),
        "ppo has a critic, and nothing else has one");
  check(!config.has_teacher_model || config.distillation_coef, "a teacher is distilled from");
  check(!config.policy.policy_divisor || config.reduction != algo::Reduction::kPerToken,
        "a constant divisor of the policy loss is no mean over tokens");
  if (config.policy.correction) {
    if (const auto* mis = std::get_if<algo::ImportanceAndRejection>(&*config.policy.correction))
      algo::check_bounds(*mis);
  }
  check(config.preference.beta > 0, "beta of preferences is above 0");
  check(config.preference.label_smoothing >= 0 && config.preference.label_smoothing < 0.5,
        "label smoothing of preferences is in [0, 0.5)");
  check(dual_clip(config.policy.objective).value_or(2) > 1, "a dual clip is above 1");
  const bool is_reinforce = std::holds_alternative<algo::Reinforce>(config.policy.objective);
  check(!config.policy.use_rollout_logprobs || !config.policy.correction ||
            config.policy.reports_mismatch || is_reinforce,
        "log-probs of the engine as the old policy leave no mismatch to correct");
  if (config.policy.centering) {
    check(is_reinforce, "scores are centered beside REINFORCE");
    check(
        !config.policy.reports_mismatch && !config.policy.off_policy_masking && !config.users_loss,
        "score centering is the loss of every token");
    check(!config.policy.correction ||
              !std::holds_alternative<algo::ImportanceAndRejection>(*config.policy.correction),
          "score centering weighs token by token");
    check(config.policy.centering->lists_support == config.replays_top_p,
          "the listed tokens are the support where log-probs are taken in it");
  }
  check(config.clip_grad >= 0, "a limit of the gradients' norm is not negative");
  check(config.adam.beta1 >= 0 && config.adam.beta1 < 1 && config.adam.beta2 >= 0 &&
            config.adam.beta2 < 1 && config.adam.eps > 0,
        "Adam's betas are in [0, 1) and its eps above 0");
  check(config.router_bias_update_rate == 0 || !config.keep_old_actor,
        "a lagging actor has the routers' biases of the actor");
  check(config.ref_update_interval >= 0, "an interval of updates is not negative");
  check_batching(config.batching);
}

}  // namespace slime::train
