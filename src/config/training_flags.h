#pragma once

/// Flags of training (config/run_config.h).
///
/// Algorithm, functions of the user's in the trainer, optimizer, adapters, batches, parallel sizes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/flag.h"

namespace slime::config {

/// Estimator, loss, corrections, reference, critic, teacher.
struct AlgorithmFlags {
  Flag<std::string> loss_type{"policy_loss"};
  Flag<std::string> advantage_estimator{"grpo"};
  Flag<double> eps_clip{0.2};
  Flag<std::optional<double>> eps_clip_high;
  Flag<std::optional<double>> eps_clip_c;
  Flag<double> value_clip{0.2};
  Flag<int64_t> num_critic_only_steps{0};
  Flag<std::string> critic_load;
  Flag<double> init_method_std{0.02};
  Flag<double> kl_coef{0.0};
  Flag<bool> use_kl_loss{false};
  Flag<double> kl_loss_coef{0.0};
  Flag<std::string> kl_loss_type{"k1"};
  Flag<bool> use_unbiased_kl{false};
  Flag<std::optional<int64_t>> ref_update_interval;
  Flag<double> entropy_coef{0.0};
  Flag<double> gamma{1.0};
  Flag<double> lambd{1.0};
  Flag<bool> normalize_advantages{false};
  Flag<bool> disable_grpo_std_normalization{false};
  Flag<bool> disable_rewards_normalization{false};
  Flag<bool> calculate_per_token_loss{false};
  Flag<std::optional<double>> policy_loss_divisor;
  Flag<double> dpo_beta{0.1};
  Flag<double> dpo_label_smoothing{0.0};
  Flag<std::optional<int64_t>> rejection_keep_best;
  Flag<std::optional<double>> rejection_min_reward;
  Flag<std::string> pg_loss_type;  // empty: follows from the rest
  Flag<bool> use_score_centering{false};
  Flag<int64_t> score_centering_top_k{128};
  Flag<bool> use_rollout_logprobs{false};
  Flag<bool> true_on_policy{false};
  Flag<bool> deterministic_mode{false};
  Flag<bool> use_tis{false};
  Flag<double> tis_clip{2.0};
  Flag<double> tis_clip_low{0.0};
  Flag<std::string> custom_tis_function_path;
  Flag<bool> get_mismatch_metrics{false};
  Flag<std::string> tis_level{"token"};
  Flag<std::string> tis_mode{"truncate"};
  Flag<std::optional<double>> tis_lower_bound;
  Flag<double> tis_upper_bound{2.0};
  Flag<bool> tis_batch_normalize{false};
  Flag<bool> use_rs{false};
  Flag<std::string> rs_level{"token"};
  Flag<std::optional<double>> rs_lower_bound;
  Flag<std::optional<double>> rs_upper_bound;
  Flag<std::optional<double>> rs_veto_threshold;
  Flag<bool> use_routing_replay{false};
  Flag<bool> use_rollout_routing_replay{false};
  Flag<std::string> moe_router_load_balancing_type{"aux_loss"};
  Flag<double> moe_aux_loss_coeff{0};
  Flag<double> moe_z_loss_coeff{0};
  Flag<bool> enable_mtp_training{false};  // docs/speculation.md
  Flag<double> mtp_loss_scaling_factor{0.1};
  Flag<bool> moe_router_enable_expert_bias{false};
  Flag<std::optional<double>> moe_router_bias_update_rate;  // default 1e-3
  Flag<bool> use_opsm{false};
  Flag<double> opsm_delta{1e-4};
  Flag<bool> use_opd{false};
  Flag<std::string> opd_type;
  Flag<double> opd_kl_coef{1.0};
  Flag<std::string> opd_teacher_load;
  Flag<std::string> custom_pg_loss_reducer_function_path;

  /// --loss-type sft_loss on samples that were generated and filtered (rejection sampling), not on rows:
  /// --rollout-function-path says which. Known behind complete_rollout_functions() (config/rules.h).
  bool imitates_samples = false;

  bool has_sft_loss() const { return loss_type == "sft_loss"; }
  bool is_supervised() const { return has_sft_loss() && !imitates_samples; }
  bool is_preference() const { return loss_type == "dpo_loss"; }
  /// Rows are trained on as they are: no engine, no reward.
  bool trains_on_rows() const { return is_supervised() || is_preference(); }
  /// A policy is trained, by advantages, ratios and their corrections.
  bool has_advantages() const { return !has_sft_loss() && !is_preference(); }
  bool has_critic() const { return has_advantages() && advantage_estimator == "ppo"; }
  bool needs_reference() const {
    return is_preference() || (has_advantages() && (kl_coef != 0.0 || use_kl_loss));
  }
  /// --custom-pg-loss-reducer-function-path names the one that is built in, Dr. GRPO's.
  bool uses_built_in_reducer() const {
    return custom_pg_loss_reducer_function_path.ends_with("custom_reducer.get_pg_loss_reducer") ||
           custom_pg_loss_reducer_function_path.ends_with("custom_reducer:get_pg_loss_reducer");
  }
  /// What of the user's is in its place; empty: nothing.
  std::string users_reducer() const {
    return uses_built_in_reducer() ? "" : custom_pg_loss_reducer_function_path.get();
  }
  std::string users_correction() const {
    return uses_icepop() || uses_mis() || names_truncation() ? "" : custom_tis_function_path.get();
  }
  /// The correction that --use-tis is without a path.
  bool names_truncation() const {
    return custom_tis_function_path.ends_with("loss.vanilla_tis_function") ||
           custom_tis_function_path.ends_with("loss:vanilla_tis_function");
  }
  /// The policy's loss has no ratio: said, or because scores are centered.
  bool is_reinforce() const { return pg_loss_type == "reinforce" || use_score_centering; }
  /// --custom-tis-function-path names a correction that is built in.
  bool uses_icepop() const { return custom_tis_function_path.ends_with(".icepop_function"); }
  bool uses_mis() const {
    return custom_tis_function_path.find("mis.compute_mis_weights") != std::string::npos ||
           custom_tis_function_path.find("mis:compute_mis_weights") != std::string::npos;
  }
};

/// Functions of the user's that the trainer calls (docs/plugins.md).
struct TrainerFunctionFlags {
  Flag<std::string> custom_loss_function_path;
  Flag<std::string> custom_loss_library;  // a shared library in the place of the function
  Flag<std::string> custom_advantage_function_path;
  Flag<std::string> rollout_data_postprocess_path;
  Flag<std::string> custom_megatron_init_path;
  Flag<std::string> custom_megatron_before_log_prob_hook_path;
  Flag<std::string> custom_megatron_before_train_step_hook_path;
};

/// AdamW, its schedule, which weights are trained.
struct OptimizerFlags {
  Flag<std::string> optimizer{"adam"};
  Flag<double> lr{1e-6};
  Flag<double> min_lr{0.0};
  Flag<std::string> lr_decay_style{"linear"};
  Flag<std::optional<int64_t>> lr_decay_iters;
  Flag<std::string> lr_wsd_decay_style{"exponential"};
  Flag<std::optional<int64_t>> lr_wsd_decay_iters;
  Flag<int64_t> lr_warmup_iters{0};
  Flag<std::optional<double>> lr_warmup_fraction;
  Flag<double> lr_warmup_init{0.0};
  Flag<double> weight_decay{0.01};
  Flag<double> adam_beta1{0.9};
  Flag<double> adam_beta2{0.999};
  Flag<double> adam_eps{1e-8};
  Flag<double> clip_grad{1.0};
  Flag<bool> reset_optimizer_states{false};
  Flag<bool> use_stateless_adam{false};
  Flag<bool> optimizer_cpu_offload{false};
  Flag<std::vector<std::string>> only_train_params_name_list;
  Flag<std::vector<std::string>> freeze_params_name_list;
  Flag<bool> freeze_indexer{false};
};

/// Low-rank adapters that are trained in the place of the weights (docs/decisions/0155-adapters.md), under the names of miles.
struct AdapterFlags {
  Flag<int64_t> lora_rank{0};
  Flag<double> lora_alpha{32};
  Flag<double> lora_dropout{0};
  Flag<bool> use_rslora{false};
  Flag<std::vector<std::string>> target_modules{std::vector<std::string>{"all-linear"}};
  Flag<std::vector<std::string>> exclude_modules;
  Flag<std::vector<int64_t>> lora_layers;
  Flag<std::vector<std::string>> lora_rank_pattern;   // "EXPRESSION=RANK"
  Flag<std::vector<std::string>> lora_alpha_pattern;  // "EXPRESSION=ALPHA"
  Flag<std::vector<std::string>> lora_modules_to_save;
  Flag<std::string> lora_init{"kaiming"};
  Flag<std::string> lora_adapter_path;  // a PEFT directory that training begins with
  /// "NAME=FLAGS" of runs over one base (config/adapter_words.h).
  Flag<std::vector<std::string>> adapter;

  bool trains_adapters() const { return lora_rank > 0 || !lora_adapter_path.peek().empty(); }
};

/// Optimizer steps of a rollout and their micro-batches.
struct BatchFlags {
  Flag<std::optional<int64_t>> global_batch_size;
  Flag<std::optional<int64_t>> num_steps_per_rollout;
  Flag<int64_t> micro_batch_size{1};
  Flag<bool> use_dynamic_batch_size{false};
  Flag<std::optional<int64_t>> max_tokens_per_gpu;
  Flag<bool> balance_data{false};
  Flag<bool> balance_by_flops{false};
  Flag<std::string> recompute_granularity;
  Flag<bool> no_prefix_sharing{false};
};

/// Parallel sizes, the hosts that ranks are on, how long one waits for another.
struct ParallelFlags {
  Flag<int64_t> tensor_model_parallel_size{1};
  Flag<int64_t> pipeline_model_parallel_size{1};
  Flag<int64_t> context_parallel_size{1};
  Flag<int64_t> expert_model_parallel_size{1};
  Flag<std::optional<int64_t>> expert_tensor_parallel_size;  // without it: see expert_tensor_size()
  Flag<bool> sequence_parallel{false};
  Flag<bool> allgather_cp{false};
  Flag<std::optional<int64_t>> decoder_first_pipeline_num_layers;
  Flag<std::optional<int64_t>> decoder_last_pipeline_num_layers;
  Flag<std::optional<int64_t>> num_virtual_stages_per_pipeline_rank;
  Flag<int64_t> actor_num_nodes{1};
  Flag<std::optional<int64_t>> num_gpus_per_node;
  Flag<std::string> launcher{"auto"};
  Flag<double> nodes_timeout_seconds{1800};
  Flag<int64_t> actor_num_gpus_per_node{1};       // ranks that train
  Flag<int64_t> distributed_timeout_minutes{10};  // of a collective
  Flag<double> worker_timeout_seconds{20};        // without a sign of life from a rank

  /// Ranks that train, each a process.
  int64_t world_size() const { return actor_num_nodes * actor_num_gpus_per_node; }
  /// Ranks that together compute the same samples.
  int64_t model_parallel_size() const {
    return tensor_model_parallel_size * pipeline_model_parallel_size * context_parallel_size;
  }
  int64_t data_parallel_size() const { return world_size() / model_parallel_size(); }
  /// Ranks that have slices of the same experts; Megatron's default is that of the other layers.
  int64_t expert_tensor_size() const {
    return expert_tensor_parallel_size.peek().value_or(tensor_model_parallel_size);
  }
  /// Ranges of layers of a pipeline stage.
  int64_t pipeline_chunks() const { return num_virtual_stages_per_pipeline_rank.value_or(1); }
  /// Micro-batches of a rank come in groups of so many (spec section 12.3).
  int64_t micro_batch_group() const {
    return pipeline_chunks() > 1 ? pipeline_model_parallel_size : 1;
  }
};

}  // namespace slime::config
