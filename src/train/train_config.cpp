#include <fmt/format.h>

#include "core/error.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

bool is_reinforce(const algo::AdvantageConfig& advantage) {
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

void validate_batching(const BatchingConfig& batching, std::vector<std::string>& problems) {
  if (batching.global_batch_size < 1) problems.push_back("global-batch-size: needs at least 1");
  if (!batching.use_dynamic_batch_size && batching.micro_batch_size < 1) {
    problems.push_back("micro-batch-size: needs at least 1");
  }
  if (batching.use_dynamic_batch_size && batching.max_tokens_per_gpu < 1) {
    problems.push_back(
        "use-dynamic-batch-size: needs --max-tokens-per-gpu, the token budget of a micro-batch");
  }
  if (batching.balance_by_flops && !batching.use_dynamic_batch_size) {
    problems.push_back("balance-by-flops: needs --use-dynamic-batch-size");
  }
}

}  // namespace

bool needs_reference(const TrainConfig& config) {
  if (config.objective == Objective::kSupervised) return false;
  if (config.objective == Objective::kPreference) return true;
  return config.policy.kl_loss.has_value() || algo::kl_coef_of(config.advantage) != 0;
}

void validate(const TrainConfig& config) {
  std::vector<std::string> problems;
  if (!(config.temperature > 0)) {
    problems.push_back(fmt::format(
        "rollout-temperature: {} must be greater than 0; greedy decoding cannot be trained on",
        config.temperature));
  }
  if (algo::kl_coef_of(config.advantage) != 0 && config.policy.kl_loss &&
      config.policy.kl_loss->coef != 0) {
    problems.push_back("kl-coef, kl-loss-coef: only one of them may differ from 0");
  }
  if (is_reinforce(config.advantage) && !config.normalize_advantages) {
    problems.push_back(
        "advantage-estimator: reinforce_plus_plus and its baseline form need "
        "--normalize-advantages");
  }
  if (std::holds_alternative<algo::Gae>(config.advantage) != config.critic.has_value()) {
    problems.push_back("advantage-estimator: ppo needs a critic, and only ppo has one");
  }
  if (config.has_teacher_model && !config.distillation_coef) {
    problems.push_back("opd-teacher-load: needs --use-opd");
  }
  if (config.policy.policy_divisor && config.reduction == algo::Reduction::kPerToken) {
    problems.push_back(
        "calculate-per-token-loss: contradicts a constant divisor of the policy loss (dr_grpo)");
  }
  if (config.policy.correction) {
    if (const auto* mis = std::get_if<algo::ImportanceAndRejection>(&*config.policy.correction)) {
      try {
        algo::validate(*mis);
      } catch (const ConfigError& error) {
        problems.emplace_back(error.what());
      }
    }
  }
  if (!(config.preference.beta > 0)) problems.push_back("dpo-beta: must be greater than 0");
  if (!(config.preference.label_smoothing >= 0 && config.preference.label_smoothing < 0.5))
    problems.push_back("dpo-label-smoothing: must be in [0, 0.5)");
  if (const auto dual = dual_clip(config.policy.objective); dual && !(*dual > 1)) {
    problems.push_back(fmt::format("eps-clip-c: {} must be greater than 1", *dual));
  }
  if (config.policy.use_rollout_logprobs && config.policy.correction &&
      !config.policy.reports_mismatch) {
    problems.push_back(
        "use-rollout-logprobs, use-tis: only one of them; with the engine's log-probs as the old "
        "policy "
        "there is no mismatch to correct");
  }
  if (!(config.clip_grad >= 0))
    problems.push_back("clip-grad: cannot be negative; 0 turns clipping off");
  const bool valid_betas = config.adam.beta1 >= 0 && config.adam.beta1 < 1 &&
                           config.adam.beta2 >= 0 && config.adam.beta2 < 1 && config.adam.eps > 0;
  if (!valid_betas)
    problems.push_back("adam-beta1, adam-beta2, adam-eps: betas lie in [0, 1), eps above 0");
  if (config.router_bias_update_rate != 0 && config.keep_old_actor) {
    problems.push_back(
        "moe-router-bias-update-rate: keep-old-actor keeps weights alone, and biases would not be "
        "those of the old policy; use a rate of 0");
  }
  if (config.ref_update_interval < 0) problems.push_back("ref-update-interval: cannot be negative");
  validate_batching(config.batching, problems);
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace slime::train
