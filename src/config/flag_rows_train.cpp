// Algorithm, optimizer, batches.

#include "config/advantage_estimators.h"
#include "config/flag_rows.h"

namespace slime::config {
namespace {
using C = RunConfig;
}

std::vector<FlagRow> algorithm_flags() {
  return {
      works("--loss-type", &C::loss_type, "what is minimised",
            {"policy_loss", "sft_loss", "dpo_loss", "custom_loss"})
          .when(kAnyRun),
      works("--advantage-estimator", &C::advantage_estimator,
            "how advantages are computed, and with which objective the policy is trained; gspo "
            "clips the ratio of a sequence, cispo the weight (use it with --eps-clip 1), the "
            "others the "
            "ratio of a token",
            words_of_advantage_estimators())
          .with("--loss-type policy_loss"),
      accepted("--disable-compute-advantages-and-returns", kSwitch, "follows from --loss-type"),
      works("--eps-clip", &C::eps_clip, "lower clip of the ratio"),
      works("--eps-clip-high", &C::eps_clip_high, "upper clip; default: --eps-clip"),
      works("--eps-clip-c", &C::eps_clip_c, "dual clip, above 1")
          .with("--advantage-estimator grpo, gspo or ppo"),
      works("--value-clip", &C::value_clip, "ppo: how far a value may move in one rollout step")
          .with("--advantage-estimator ppo"),
      accepted("--use-critic", kSwitch, "a critic follows from --advantage-estimator ppo"),
      works("--num-critic-only-steps", &C::num_critic_only_steps,
            "ppo: rollouts in which the critic trains alone")
          .with("--advantage-estimator ppo"),
      works("--critic-load", &C::critic_load,
            "ppo: model directory the critic starts from; default: --hf-checkpoint")
          .with("--advantage-estimator ppo"),
      works("--init-method-std", &C::init_method_std, "ppo: of the critic's fresh head")
          .with("--advantage-estimator ppo"),
      works("--kl-coef", &C::kl_coef, "KL penalty inside the advantage")
          .with("--advantage-estimator ppo or reinforce_plus_plus"),
      works("--use-kl-loss", &C::use_kl_loss, "add a KL term to the loss"),
      works("--kl-loss-coef", &C::kl_loss_coef, "its weight").with("--use-kl-loss"),
      works("--kl-loss-type", &C::kl_loss_type, "the estimator", {"k1", "k2", "k3", "low_var_kl"})
          .with("--use-kl-loss or --kl-coef"),
      works("--use-unbiased-kl", &C::use_unbiased_kl, "multiply the estimator by the ratio")
          .with("--use-kl-loss"),
      works("--ref-update-interval", &C::ref_update_interval,
            "the reference becomes the actor every N rollouts"),
      works("--entropy-coef", &C::entropy_coef, "entropy bonus"),
      accepted("--use-rollout-entropy", kSwitch,
               "the entropy is always reported, train/entropy_loss"),
      works("--pg-loss-type", &C::pg_loss_type,
            "policy gradient with a clipped ratio (ppo), or without a ratio (reinforce)",
            {"ppo", "reinforce"})
          .with("--loss-type policy_loss"),
      works("--use-score-centering", &C::use_score_centering,
            "subtract the mean score under the sampler's distribution from each token's; makes "
            "--pg-loss-type reinforce")
          .with("--loss-type policy_loss"),
      works("--score-centering-top-k", &C::score_centering_top_k,
            "log-probs of the sampler kept for each token where --rollout-top-p is 1")
          .with("--use-score-centering and --rollout-top-p 1"),
      accepted("--routing-replay-prefetch-microbatches", kValue,
               "routes are in host memory: there is nothing to read ahead"),
      accepted("--force-fp8-ue8m0-scale", kSwitch,
               "only blocks of FP8 have scales; refused with --rollout-precision fp8"),
      works("--gamma", &C::gamma, "discount")
          .with("--advantage-estimator ppo or reinforce_plus_plus"),
      works("--lambd", &C::lambd, "of GAE (ppo)").with("--advantage-estimator ppo"),
      works("--normalize-advantages", &C::normalize_advantages, "whiten over the rollout step"),
      works("--disable-grpo-std-normalization", &C::disable_grpo_std_normalization,
            "subtract the group's mean only (Dr. GRPO)"),
      works("--disable-rewards-normalization", &C::disable_rewards_normalization,
            "rewards as they are"),
      works("--calculate-per-token-loss", &C::calculate_per_token_loss,
            "mean over tokens, not over responses"),
      works("--policy-loss-divisor", &C::policy_loss_divisor,
            "sum over tokens divided by this instead of the mean (Dr. GRPO); default with dr_grpo: "
            "--rollout-max-response-len"),
      works("--rejection-keep-best", &C::rejection_keep_best,
            "rejection sampling (sft_loss on generated samples): at most N samples of a prompt are "
            "trained, those with the highest rewards")
          .with("--loss-type sft_loss on generated samples"),
      works("--rejection-min-reward", &C::rejection_min_reward,
            "rejection sampling: samples with a lower reward are not trained")
          .with("--loss-type sft_loss on generated samples"),
      works("--dpo-beta", &C::dpo_beta,
            "dpo_loss: how strongly the policy is held to the reference")
          .with("--loss-type dpo_loss"),
      works("--dpo-label-smoothing", &C::dpo_label_smoothing,
            "dpo_loss: share of pairs that may be labelled wrongly")
          .with("--loss-type dpo_loss"),
      works("--use-rollout-logprobs", &C::use_rollout_logprobs,
            "the engine's log-probs are the old policy's"),
      works(
          "--true-on-policy", &C::true_on_policy,
          "the trainer computes with the engine's bits: the log-probs of each step are checked to "
          "be equal, and no pass, correction or replay makes up for a difference (docs/exact.md)"),
      alias("--true-on-policy-mode", {.words = {{"", {{"--true-on-policy", ""}}}}},
            "the same as --true-on-policy"),
      works("--use-tis", &C::use_tis, "truncated importance sampling between trainer and engine"),
      works("--tis-clip", &C::tis_clip, "its upper bound").with("--use-tis"),
      works("--tis-clip-low", &C::tis_clip_low, "its lower bound").with("--use-tis"),
      works("--custom-tis-function-path", &C::custom_tis_function_path,
            "built in: slime.backends.megatron_utils.loss.vanilla_tis_function (the default), "
            "slime.backends.megatron_utils.loss.icepop_function and "
            "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp; else a function "
            "of the user's (docs/plugins.md)")
          .with("--use-tis or --get-mismatch-metrics, and --loss-type policy_loss"),
      works("--get-mismatch-metrics", &C::get_mismatch_metrics,
            "report the correction's metrics without applying it"),
      works("--tis-level", &C::tis_level, "MIS: what a ratio is taken over",
            {"token", "sequence", "geometric"})
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp)"),
      works("--tis-mode", &C::tis_mode, "MIS: what happens at the bounds",
            {"truncate", "clip", "mask"})
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp)"),
      works("--tis-lower-bound", &C::tis_lower_bound, "MIS; default: 1 / upper bound")
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp)"),
      works("--tis-upper-bound", &C::tis_upper_bound, "MIS")
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp)"),
      works("--tis-batch-normalize", &C::tis_batch_normalize,
            "MIS: weights of a micro-batch have mean 1")
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp)"),
      works("--use-rs", &C::use_rs, "MIS: reject tokens by their ratio")
          .with("--custom-tis-function-path with the MIS function"),
      works("--rs-level", &C::rs_level, "MIS: what that ratio is taken over",
            {"token", "sequence", "geometric"})
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp) and "
                "--use-rs"),
      works("--rs-lower-bound", &C::rs_lower_bound, "MIS; default: --tis-lower-bound")
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp) and "
                "--use-rs"),
      works("--rs-upper-bound", &C::rs_upper_bound, "MIS; default: --tis-upper-bound")
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp) and "
                "--use-rs"),
      works("--rs-veto-threshold", &C::rs_veto_threshold,
            "MIS: reject the whole response if a token's ratio is below this")
          .with("--custom-tis-function-path with the MIS function "
                "(examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp) and "
                "--use-rs"),
      works("--use-opsm", &C::use_opsm,
            "OPSM: drop tokens with negative advantage of responses that are "
            "off-policy by more than --opsm-delta"),
      works("--opsm-delta", &C::opsm_delta,
            "OPSM: mean log-prob difference from the old policy above which a "
            "response counts as off-policy")
          .with("--use-opsm"),
      works("--use-opd", &C::use_opd, "on-policy distillation: pull towards a teacher"),
      works("--opd-type", &C::opd_type,
            "who scores: a model directory here (megatron), or a server (sglang)",
            {"sglang", "megatron"})
          .with("--use-opd"),
      works("--opd-kl-coef", &C::opd_kl_coef, "how strongly").with("--use-opd"),
      works("--opd-teacher-load", &C::opd_teacher_load, "the teacher's model directory")
          .with("--use-opd --opd-type megatron"),
      refused("--opd-teacher-ckpt-step", kValue,
              "give the checkpoint's own folder to --opd-teacher-load"),
      works(
          "--custom-pg-loss-reducer-function-path", &C::custom_pg_loss_reducer_function_path,
          "built in: examples.DrGRPO.custom_reducer.get_pg_loss_reducer (divides by 1000); else a "
          "function of the user's (docs/plugins.md)")
          .with("--loss-type policy_loss"),
      works("--custom-loss-function-path", &C::custom_loss_function_path,
            "custom_loss: a function of the user's, module.name, file.py:name or file.py "
            "(docs/plugins.md)")
          .when(kAnyRun),
      works("--custom-loss-library", &C::custom_loss_library,
            "custom_loss: a shared library of the user's, FILE.so (include/slime/loss.h)")
          .when(kAnyRun),
      works("--custom-advantage-function-path", &C::custom_advantage_function_path,
            "a function of the user's that makes the advantages (docs/plugins.md)")
          .when(kAnyRun),
      works("--use-routing-replay", &C::use_routing_replay,
            "MoE: use the routing of the pass for old log-probs"),
      works("--use-rollout-routing-replay", &C::use_rollout_routing_replay,
            "MoE: use the engine's routing"),
      works("--moe-router-load-balancing-type", &C::moe_router_load_balancing_type,
            "MoE: load-balancing loss over the tokens of a micro-batch (aux_loss) or "
            "of each sequence (seq_aux_loss)",
            {"none", "aux_loss", "seq_aux_loss"})
          .with("a model with experts"),
      works("--moe-aux-loss-coeff", &C::moe_aux_loss_coeff, "how strongly that loss counts")
          .with("a model with experts, and --moe-router-load-balancing-type aux_loss or "
                "seq_aux_loss"),
      works("--moe-z-loss-coeff", &C::moe_z_loss_coeff,
            "MoE: weight of the loss that keeps the routers' logits small")
          .with("a model with experts"),
      works("--moe-router-enable-expert-bias", &C::moe_router_enable_expert_bias,
            "after each step selection biases follow the load of experts")
          .with("a model with experts"),
      works("--moe-router-bias-update-rate", &C::moe_router_bias_update_rate,
            "by how much; default 1e-3; 0: they stay")
          .with("--moe-router-enable-expert-bias"),
  };
}

std::vector<FlagRow> optimizer_flags() {
  return {
      works("--optimizer", &C::optimizer, "AdamW with decoupled weight decay", {"adam"})
          .when(kTraining),
      works("--lr", &C::lr, "peak learning rate"),
      works("--min-lr", &C::min_lr, "where decay ends")
          .with("a --lr-decay-style other than constant"),
      works("--lr-decay-style", &C::lr_decay_style, "shape of the schedule",
            {"constant", "linear", "cosine", "inverse-square-root", "WSD"}),
      works("--lr-decay-iters", &C::lr_decay_iters, "steps of decay; default: all of the run")
          .with("a --lr-decay-style other than constant"),
      works("--lr-wsd-decay-style", &C::lr_wsd_decay_style, "shape of the last part of WSD",
            {"linear", "cosine", "exponential", "minus_sqrt"})
          .with("--lr-decay-style WSD"),
      works("--lr-wsd-decay-iters", &C::lr_wsd_decay_iters,
            "steps of the last part of WSD; before them the rate stays")
          .with("--lr-decay-style WSD"),
      works("--lr-warmup-iters", &C::lr_warmup_iters, "steps of linear warm-up"),
      works("--lr-warmup-fraction", &C::lr_warmup_fraction,
            "warm-up as a fraction of the decay steps"),
      works("--lr-warmup-init", &C::lr_warmup_init, "learning rate at step 0 of the warm-up")
          .with("--lr-warmup-iters or --lr-warmup-fraction"),
      works("--weight-decay", &C::weight_decay, "of matrices; vectors do not decay"),
      works("--adam-beta1", &C::adam_beta1, "first moment"),
      works("--adam-beta2", &C::adam_beta2, "second moment"),
      works("--adam-eps", &C::adam_eps, "added after the square root"),
      works("--clip-grad", &C::clip_grad, "limit of the global gradient norm; 0: none"),
      works("--reset-optimizer-states", &C::reset_optimizer_states,
            "zero moments and step counter at the start of every rollout"),
      works("--use-stateless-adam", &C::use_stateless_adam,
            "every step starts from zero moments; needs --no-save-optim"),
      works("--only-train-params-name-list", &C::only_train_params_name_list,
            "regular expressions: weights that match none are frozen")
          .when(kTraining),
      works("--freeze-params-name-list", &C::freeze_params_name_list,
            "regular expressions: weights that match one are frozen")
          .when(kTraining),
      works("--freeze-indexer", &C::freeze_indexer,
            "indexers of sparse attention keep their weights, which no gradient reaches anyway")
          .with("a model whose attention has indexers"),
      accepted("--no-check-for-nan-in-loss-and-grad", kSwitch,
               "a step with a bad gradient is always skipped, and a few in a row end the run"),
      accepted("--use-distributed-optimizer", kSwitch, kAlways),
      works("--optimizer-cpu-offload", &C::optimizer_cpu_offload,
            "master weights and moments stay in host memory and pass through the GPU in pieces")
          .with("a GPU"),
      accepted("--overlap-cpu-optimizer-d2h-h2d", kSwitch,
               "copies always run beside the update (--optimizer-cpu-offload)"),
      accepted("--use-precision-aware-optimizer", kSwitch, "moments are float32"),
      accepted("--accumulate-allreduce-grads-in-fp32", kSwitch, kAlways),
      accepted("--no-gradient-accumulation-fusion", kSwitch,
               "gradients always add into one buffer"),
      refused("--fp8-format", kValue, "use --bf16"),
      refused("--fp8-recipe", kValue, "use --bf16"),
      refused("--fp8-param-gather", kSwitch, "use --bf16"),
  };
}

std::vector<FlagRow> batch_flags() {
  constexpr std::string_view kByLayer = "layers are recomputed one by one";
  return {
      works("--global-batch-size", &C::global_batch_size, "responses per optimizer step"),
      works("--num-steps-per-rollout", &C::num_steps_per_rollout,
            "optimizer steps per rollout step")
          .when(kTraining),
      works("--micro-batch-size", &C::micro_batch_size,
            "samples per forward, without dynamic batches")
          .with("steps without --use-dynamic-batch-size"),
      works("--use-dynamic-batch-size", &C::use_dynamic_batch_size, "pack samples by tokens"),
      works("--max-tokens-per-gpu", &C::max_tokens_per_gpu, "tokens per forward")
          .with("--use-dynamic-batch-size"),
      accepted("--log-probs-max-tokens-per-gpu", kValue,
               "--max-tokens-per-gpu bounds every pass; the original reads it nowhere"),
      works("--balance-data", &C::balance_data, "balance ranks by work"),
      works("--balance-by-flops", &C::balance_by_flops, "balance micro-batches by work")
          .with("--use-dynamic-batch-size"),
      accepted("--log-probs-chunk-size", kValue, "log-probs are always computed in chunks"),
      works("--recompute-granularity", &C::recompute_granularity,
            "recompute activations in the backward pass: all except the layers' "
            "inputs (full), or only cheap ones (selective)",
            {"full", "selective"}),
      alias("--recompute-activations",
            {.words = {{"", {{"--recompute-granularity", "selective"}}}}, .yields = true},
            "same as --recompute-granularity selective"),
      accepted("--recompute-method", kValue, kByLayer),
      accepted("--recompute-num-layers", kValue, kByLayer),
      accepted("--recompute-loss-function", kSwitch,
               "logits are kept where the device has room, and computed again elsewhere"),
      works("--no-prefix-sharing", &C::no_prefix_sharing,
            "train every sample with its own copy of the prompt, with the same "
            "results. On GPUs this is chosen automatically if sharing would take "
            "longer"),
      accepted("--data-pad-size-multiplier", kValue, "nothing is padded"),
      accepted("--ref-micro-batch-size", kValue, "the original ignores it too"),
  };
}

}  // namespace slime::config
