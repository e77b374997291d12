// Algorithm, its corrections, critic, teacher and preferences.

#include <fmt/format.h>

#include <filesystem>

#include "config/advantage_estimators.h"
#include "config/rules.h"
#include "config/users_functions.h"

namespace slime::config {

void check_distillation(const RunConfig& config, Problems& problems) {
  if (!config.use_opd) {
    problems.require(config.opd_teacher_load.empty(), "--opd-teacher-load: needs --use-opd");
    problems.require(config.opd_type.empty(), "--opd-type: needs --use-opd");
    return;
  }
  problems.require(!config.opd_type.empty(), "--use-opd: needs --opd-type megatron or sglang");
  problems.require(config.has_advantages(),
                   "--use-opd: needs responses of the policy; use "
                   "--loss-type policy_loss");
  if (config.opd_type == "megatron") {
    problems.require(
        !config.opd_teacher_load.empty(),
        "--opd-type megatron: needs --opd-teacher-load, the teacher's model directory");
    problems.require_path(
        config.opd_teacher_load.empty() || std::filesystem::is_directory(config.opd_teacher_load),
        fmt::format("--opd-teacher-load {}: no such directory", config.opd_teacher_load));
  }
  if (config.opd_type == "sglang") {
    problems.require(config.opd_teacher_load.empty(),
                     "--opd-type sglang: the teacher is a server (--rm-url); leave "
                     "--opd-teacher-load out");
    problems.require(!config.rm_url.empty(),
                     "--opd-type sglang: needs --rm-url, the teacher's "
                     "/generate");
    problems.require(!config.rm_type.ends_with("remote_rm"),
                     "--rm-type remote_rm: with --opd-type sglang --rm-url is the teacher's; give "
                     "the judge's rewards by --custom-rm-path");
  }
}

namespace {

/// Of the MIS function.
void check_ratio_bounds(const RunConfig& config, Problems& problems) {
  const double upper = config.tis_upper_bound, lower = config.tis_lower_bound.value_or(1 / upper);
  problems.require(upper > 0, fmt::format("--tis-upper-bound {}: should be above 0", upper));
  problems.require(
      !(upper > 0) || config.tis_mode == "truncate" || lower < upper,
      fmt::format("--tis-lower-bound {}: should be below --tis-upper-bound {}", lower, upper));
  problems.require(!config.tis_batch_normalize || config.tis_level != "geometric",
                   "--tis-batch-normalize: has no meaning with --tis-level geometric; use token or "
                   "sequence");
  if (!config.use_rs) return;
  const double low = config.rs_lower_bound.value_or(lower),
               high = config.rs_upper_bound.value_or(upper);
  problems.require(
      low < high,
      fmt::format("--rs-lower-bound {}: should be below --rs-upper-bound {}", low, high));
  const double veto = config.rs_veto_threshold.value_or(1);
  problems.require(veto > 0, fmt::format("--rs-veto-threshold {}: should be above 0", veto));
}

}  // namespace

void check_mismatch(const RunConfig& config, Problems& problems,
                    std::vector<std::string>& warnings) {
  const std::string& path = config.custom_tis_function_path;
  problems.require(path.empty() || config.use_tis || config.get_mismatch_metrics,
                   "--custom-tis-function-path: needs --use-tis or --get-mismatch-metrics");
  if (config.get_mismatch_metrics && path.empty() && !config.use_tis) {
    warnings.emplace_back(
        "--get-mismatch-metrics: no --custom-tis-function-path says which correction to report on; "
        "reported is truncated importance sampling, that of --use-tis");
  }
  problems.require(!config.use_rs || config.uses_mis(),
                   "--use-rs: needs --custom-tis-function-path with the MIS function");
  problems.require(config.tis_clip_low <= config.tis_clip,
                   fmt::format("--tis-clip-low {}: is above --tis-clip {}", config.tis_clip_low,
                               config.tis_clip));
  if (config.uses_mis() && config.use_tis) check_ratio_bounds(config, problems);
}

namespace {

/// Of the actor, and of a critic with flags of its own.
void check_optimizer(const RunConfig& config, Problems& problems) {
  problems.require(config.lr >= 0, "--lr: should not be negative");
  problems.require(config.min_lr <= config.lr,
                   fmt::format("--min-lr {}: is above --lr {}", config.min_lr, config.lr));
  const bool is_wsd = config.lr_decay_style == "WSD";
  problems.require(!is_wsd || config.lr_wsd_decay_iters.value_or(0) >= 1,
                   "--lr-decay-style WSD: needs --lr-wsd-decay-iters, at least 1");
  problems.require(is_wsd || !config.lr_wsd_decay_iters,
                   "--lr-wsd-decay-iters: needs --lr-decay-style WSD");
  problems.require(config.lr_warmup_iters >= 0, "--lr-warmup-iters: should not be negative");
  const double warmup = config.lr_warmup_fraction.value_or(0);
  problems.require(
      warmup >= 0 && warmup < 1,
      fmt::format("--lr-warmup-fraction {}: should be at least 0 and below 1", warmup));
  problems.require(config.adam_beta1 >= 0 && config.adam_beta1 < 1,
                   "--adam-beta1: should be in [0, 1)");
  problems.require(config.adam_beta2 >= 0 && config.adam_beta2 < 1,
                   "--adam-beta2: should be in [0, 1)");
  problems.require(config.clip_grad >= 0, "--clip-grad: should not be negative");
  problems.require(config.adam_eps > 0, "--adam-eps: should be above 0");
  problems.require(config.weight_decay >= 0, "--weight-decay: should not be negative");
}

/// What --megatron-config-path says of the critic alone.
void check_critic_flags(const RunConfig& critic, Problems& problems) {
  Problems own({});
  check_optimizer(critic, own);
  own.require(critic.value_clip > 0, "--value-clip: should be above 0");
  own.require(critic.init_method_std >= 0, "--init-method-std: should not be negative");
  for (const std::string& message : own.messages())
    problems.require(false, "--megatron-config-path: critic: " + message);
}

}  // namespace

void check_critic(const ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const bool is_ppo = config.has_critic();
  problems.require(is_ppo || !flags.gives("--use-critic"),
                   "--use-critic: needs --advantage-estimator ppo, which has a critic by itself");
  problems.require(is_ppo || config.critic == nullptr,
                   "--megatron-config-path: only --advantage-estimator ppo has a critic");
  problems.require(is_ppo || config.num_critic_only_steps == 0,
                   "--num-critic-only-steps: needs --advantage-estimator ppo");
  problems.require(config.num_critic_only_steps >= 0,
                   "--num-critic-only-steps: should not be negative");
  problems.require(config.value_clip > 0, "--value-clip: should be above 0");
  problems.require(config.init_method_std >= 0, "--init-method-std: should not be negative");
  problems.require(config.lambd >= 0 && config.lambd <= 1, "--lambd: should be in [0, 1]");
  problems.require(config.gamma >= 0 && config.gamma <= 1, "--gamma: should be in [0, 1]");
  if (!is_ppo) return;
  if (config.critic != nullptr) check_critic_flags(*config.critic, problems);
  const std::string& own =
      config.critic != nullptr ? config.critic->critic_load : config.critic_load;
  problems.require_path(own.empty() || std::filesystem::is_directory(own),
                        fmt::format("--critic-load {}: no such directory", own));
}

void check_preferences(const RunConfig& config, Problems& problems) {
  problems.require(config.dpo_beta > 0,
                   fmt::format("--dpo-beta {}: should be above 0", config.dpo_beta));
  problems.require(
      config.dpo_label_smoothing >= 0 && config.dpo_label_smoothing < 0.5,
      fmt::format("--dpo-label-smoothing {}: should be in [0, 0.5)", config.dpo_label_smoothing));
  if (!config.is_preference()) return;
  problems.require(
      config.chosen_key != config.rejected_key,
      fmt::format("--rejected-key {}: is the same field as --chosen-key", config.rejected_key));
  problems.require(!config.calculate_per_token_loss,
                   "--calculate-per-token-loss: dpo_loss is a mean over pairs; leave it out");
}

namespace {

/// A group's baseline is its own mean: one sample has the advantage 0, so that nothing is learned.
void check_groups(const RunConfig& config, Problems& problems) {
  using Baseline = AdvantageEstimator::Baseline;
  const AdvantageEstimator& estimator = advantage_estimator_of(config.advantage_estimator.get());
  const bool has_critic_or_batch = estimator.baseline == Baseline::kNone;
  const bool has_own_way =
      config.disable_rewards_normalization && estimator.baseline != Baseline::kLeaveOneOut;
  const bool has_functions = !config.custom_advantage_function_path.empty() ||
                             !config.custom_convert_samples_to_train_data_path.empty() ||
                             config.has_users_post_process() || has_users_rollout(config) ||
                             !config.custom_generate_function_path.empty();
  if (config.n_samples_per_prompt != 1 || !config.generates() || config.debug_rollout_only ||
      config.loss_type != "policy_loss" || has_critic_or_batch || has_own_way || has_functions ||
      config.use_opd)
    return;
  problems.require(
      false, fmt::format("--n-samples-per-prompt 1 and --advantage-estimator {}: the baseline is "
                         "the mean of a prompt's samples, so every advantage would be 0; use at "
                         "least 2, or reinforce_plus_plus or ppo",
                         estimator.word));
}

}  // namespace

void check_algorithm(RunConfig& config, Problems& problems, std::vector<std::string>& warnings) {
  problems.require(config.kl_coef == 0 || config.kl_loss_coef == 0,
                   fmt::format("--kl-coef {} and --kl-loss-coef {}: only one may be non-zero",
                               config.kl_coef, config.kl_loss_coef));
  problems.require(config.kl_loss_coef == 0 || config.use_kl_loss,
                   "--kl-loss-coef: needs --use-kl-loss");
  problems.require(!config.use_unbiased_kl || config.use_kl_loss,
                   "--use-unbiased-kl: needs --use-kl-loss");
  problems.require(config.ref_update_interval.value_or(1) >= 1,
                   fmt::format("--ref-update-interval {}: should be at least 1",
                               config.ref_update_interval.value_or(1)));
  problems.require(!config.ref_update_interval || config.needs_reference(),
                   "--ref-update-interval: needs a reference (--use-kl-loss or --kl-coef)");
  const AdvantageEstimator& estimator = advantage_estimator_of(config.advantage_estimator.get());
  problems.require(
      !estimator.needs_normalization() || config.normalize_advantages,
      fmt::format("--advantage-estimator {}: needs --normalize-advantages", estimator.word));
  problems.require(
      !(config.use_rollout_logprobs && config.use_tis) || config.is_reinforce(),
      "--use-rollout-logprobs and --use-tis: choose one; with --pg-loss-type reinforce "
      "both work, because weights are those of the policy that is trained");
  if (config.keep_old_actor && config.use_rollout_logprobs && !config.get_mismatch_metrics) {
    config.keep_old_actor = false;
    warnings.emplace_back(
        "--keep-old-actor has no effect with --use-rollout-logprobs: old log-probs are the "
        "engine's, no network computes them");
  }
  problems.require(!config.policy_loss_divisor || *config.policy_loss_divisor > 0,
                   "--policy-loss-divisor: should be above 0");
  const std::string& reducer = config.custom_pg_loss_reducer_function_path;
  const bool is_built_in = config.uses_built_in_reducer();
  problems.require(reducer.empty() || !config.policy_loss_divisor,
                   "--policy-loss-divisor and --custom-pg-loss-reducer-function-path: choose one");
  if (is_built_in && !config.policy_loss_divisor && !config.calculate_per_token_loss)
    config.policy_loss_divisor = 1000;
  if (estimator.has_constant_divisor) {
    config.disable_grpo_std_normalization = true;
    if (!config.policy_loss_divisor && config.rollout_max_response_len)
      config.policy_loss_divisor = static_cast<double>(*config.rollout_max_response_len);
  }
  problems.require(!config.policy_loss_divisor || !config.calculate_per_token_loss,
                   "--calculate-per-token-loss: contradicts a constant divisor "
                   "(--policy-loss-divisor, dr_grpo)");
  check_groups(config, problems);
  if (config.lr_warmup_fraction && config.lr_warmup_iters > 0) {
    warnings.push_back(
        fmt::format("--lr-warmup-iters {} has no effect: --lr-warmup-fraction {} says how long the "
                    "warm-up is",
                    config.lr_warmup_iters, *config.lr_warmup_fraction));
  }
  if (config.use_opd && !config.custom_advantage_function_path.empty()) {
    warnings.push_back(fmt::format(
        "--use-opd: the function of --custom-advantage-function-path makes the whole advantage; it "
        "gets teacher_log_probs, and --opd-kl-coef {} is not applied",
        config.opd_kl_coef));
  }
  if (config.kl_coef != 0 && !estimator.uses_kl_coef()) {
    warnings.push_back(
        fmt::format("--kl-coef {}: the advantages of {} do not contain it; "
                    "--use-kl-loss --kl-loss-coef holds the policy back",
                    config.kl_coef, estimator.word));
  }
  if (estimator.objective == AdvantageEstimator::Objective::kClippedWeight && config.eps_clip < 1) {
    warnings.push_back(
        fmt::format("--eps-clip {}: cispo is meant without a lower bound, --eps-clip "
                    "1 or more",
                    config.eps_clip));
  }
  problems.require(!config.eps_clip_c || *config.eps_clip_c > 1, "--eps-clip-c: should be above 1");
  problems.require(config.eps_clip >= 0, "--eps-clip: should not be negative");
  problems.require(config.eps_clip_high.value_or(0) >= 0,
                   "--eps-clip-high: should not be negative");
  if (!config.eps_clip_high) {
    config.eps_clip_high = config.eps_clip.get();
    config.eps_clip_high.stems_from(config.eps_clip);
  }
  if (config.n_samples_per_prompt == 1) config.disable_grpo_std_normalization = true;
  if (config.eval_reward_key.empty()) {
    config.eval_reward_key = config.reward_key.get();
    config.eval_reward_key.stems_from(config.reward_key);
  }
  if (config.ref_load.empty()) config.ref_load = config.hf_checkpoint;
  problems.require_path(!config.needs_reference() || config.ref_load == config.hf_checkpoint ||
                            std::filesystem::is_directory(config.ref_load),
                        fmt::format("--ref-load {}: no such directory; without it the reference is "
                                    "--hf-checkpoint, which needs no conversion",
                                    config.ref_load));
  problems.require(
      config.only_train_params_name_list.empty() || config.freeze_params_name_list.empty(),
      "--only-train-params-name-list and --freeze-params-name-list: choose one");
  problems.require(!config.use_stateless_adam || config.no_save_optim,
                   "--use-stateless-adam: needs --no-save-optim, there is no state to save");
  check_optimizer(config, problems);
}

}  // namespace slime::config
