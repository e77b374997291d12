#pragma once

/// Everything a user can set for `slime train`: one plain struct for each group of flags, and
/// RunConfig, which is all of them.
///
/// Names are the words of the flags with `_` for `-`; defaults are the original's (spec section
/// 20). The flag table (config/flag_table.h) maps words to members; nothing else knows the words.
/// Users have one flat set of words, so RunConfig inherits its groups: no two groups can have a
/// member of the same name, and a reader takes the group it needs (`const RewardFlags&`) where the
/// caller has the whole. A RunConfig that came out of `parse_flags` and `complete_and_validate` is
/// complete and free of contradictions. One file because a flag's member is looked for here.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/flag.h"

namespace slime::config {

/// The model, its checkpoints, the device.
struct ModelFlags {
  Flag<std::string> hf_checkpoint;  // directory of the model to train
  Flag<std::string> ref_load;       // reference model; default: hf_checkpoint
  Flag<std::string> load;  // checkpoint folder to resume from; default: save, when it has one
  Flag<std::string> save;  // checkpoint folder; default: run_dir
  Flag<bool> allow_unknown_flags{false};
  Flag<bool> from_launch_script{false};        // what train.py adds
  Flag<bool> dry_run{false};                   // the command only says what a run would do
  Flag<std::optional<int64_t>> save_interval;  // rollouts; the last one is always saved
  Flag<int64_t> keep_checkpoints{2};           // older ones are deleted; 0 keeps all
  Flag<bool> no_save_optim{false};
  Flag<bool> no_load_optim{false};
  /// --load gives weights alone; the run begins at rollout 0.
  Flag<bool> finetune{false};
  Flag<bool> allow_other_experiment{false};  // go on from another model's or reward's checkpoint
  Flag<std::optional<int64_t>> start_rollout_id;
  Flag<bool> overwrite{false};  // delete what an earlier run left in run_dir
  Flag<std::string>
      run_dir;  // metrics, rollouts, report, checkpoints; default: runs/<model>-<time>
  /// auto until the run has chosen (setup/run_devices.h), where users say nothing.
  Flag<std::string> device{"cpu"};      // or cuda: trainer and engine share the first visible GPU
  Flag<std::string> dtype{"bfloat16"};  // of the weights; the optimizer's master copy is float32
  Flag<bool> bf16{false};
  Flag<bool> fp16{false};
  Flag<bool> fp32{false};
  Flag<int64_t> seed{1234};
  Flag<int64_t> num_threads{0};            // 0: all cores
  Flag<std::string> custom_config_path;    // YAML whose keys win over the command line
  Flag<std::string> megatron_config_path;  // YAML with overrides for actor and critic
};

/// Prompt files and how their rows are read.
struct DataFlags {
  Flag<std::vector<std::string>> prompt_data;
  Flag<std::string> input_key{"input"};
  Flag<std::string> label_key;
  Flag<std::string> metadata_key{"metadata"};
  Flag<std::string> tool_key{"tools"};
  Flag<std::string> chosen_key{"chosen"};
  Flag<std::string> rejected_key{"rejected"};
  Flag<bool> apply_chat_template{false};
  Flag<std::string> apply_chat_template_kwargs{"{}"};
  Flag<bool> rollout_shuffle{false};
  Flag<int64_t> rollout_seed{42};
  Flag<std::optional<int64_t>> num_rollout;
  Flag<std::optional<int64_t>> num_epoch;
  Flag<int64_t> rollout_batch_size{0};
  Flag<int64_t> n_samples_per_prompt{1};
  Flag<int64_t> num_data_workers{0};  // 0: all cores
  Flag<bool> streaming_data{false};
  Flag<std::string> completion_key{"completion"};
  Flag<std::string> loss_mask_type{"auto"};
  Flag<std::string> trained_answers{"all"};
  Flag<bool> no_special_tokens_in_content{false};
  Flag<std::string> data_source_path{"slime.rollout.data_source.RolloutDataSourceWithBuffer"};
  Flag<bool> disable_rollout_global_dataset{
      false};                            // prompts are the user's own functions' business
  Flag<std::string> rollout_buffer_url;  // of `slime buffer`, for rollout functions that read it
  Flag<std::string> rollout_task_type{"math"};  // which of its generators draws
  Flag<int64_t> fetch_trajectory_retry_times{
      -1};  // failed reads in a row that end the run; -1: none
};

/// What is drawn for a step, and the rules of each response.
struct RolloutFlags {
  Flag<std::string> rollout_function_path{"slime.rollout.sglang_rollout.generate_rollout"};
  Flag<double> rollout_temperature{1.0};
  Flag<double> rollout_top_p{1.0};
  Flag<int64_t> rollout_top_k{-1};
  Flag<std::optional<int64_t>> rollout_max_context_len;
  Flag<std::optional<int64_t>> rollout_max_prompt_len;
  Flag<std::optional<int64_t>> rollout_max_response_len;
  Flag<bool> rollout_skip_special_tokens{false};
  Flag<std::vector<std::string>> rollout_stop;
  Flag<std::vector<int64_t>> rollout_stop_token_ids;
  Flag<std::optional<int64_t>> over_sampling_batch_size;
  Flag<std::string> over_sampling_refill{"step"};
  Flag<std::string> dynamic_sampling_filter_path;
  Flag<double> max_filter_ratio{64};         // dropped in a step, for each group of it; 0: no limit
  Flag<int64_t> max_failed_groups{64};       // of a step, whatever their share
  Flag<double> max_failed_group_share{0.5};  // beyond that: of the groups of a step that ended
  Flag<int64_t> max_untrained_steps{10};     // in a row; 0: no limit
  Flag<bool> partial_rollout{false};
  Flag<bool> mask_offpolicy_in_partial_rollout{false};
  Flag<bool> keep_old_actor{false};
  Flag<std::string> custom_generate_function_path;
  Flag<std::optional<double>> generate_timeout_seconds;  // set behind validation
};

/// Generation beside training (docs/decisions/0080-asynchronous-training.md).
struct AsyncFlags {
  Flag<bool> train_async{false};  // `slime train-async`
  Flag<bool> fully_async{false};  // the same, in the words of another family
  Flag<bool> colocate{
      false};  // trainer and engine take turns on one device, with one set of weights
  Flag<int64_t> update_weights_interval{1};                 // steps between updates of the engine
  Flag<std::optional<int64_t>> max_staleness;               // in updates; default 1
  Flag<std::optional<int64_t>> max_weight_staleness;        // the same
  Flag<std::optional<int64_t>> max_policy_version_lag;      // the same
  Flag<std::optional<int64_t>> fully_async_version_window;  // the same
  Flag<std::optional<double>> staleness_threshold;          // the same, rounded down
  Flag<std::optional<int64_t>> async_buffer_size;  // finished batches that may wait; default 2
  Flag<std::optional<double>> async_data_buffer_capacity_factor;   // the same
  Flag<std::optional<int64_t>> fully_async_max_completed_samples;  // the same, in samples
  Flag<std::string> fully_async_buffer_policy;    // async_order and staleness_policy in one word
  Flag<bool> keep_cache_on_weight_update{false};  // update_mode suspend, kv_on_update keep
  Flag<std::string> staleness_policy{"wait"};
  Flag<std::string> async_unused_samples_handler;  // the same: drop or retry
  Flag<std::string> async_order{"dispatch"};
  Flag<std::string> update_mode{"suspend"};
  Flag<std::string> restart_mode{"sibling"};
  Flag<std::string> kv_on_update{"keep"};
  Flag<std::string> pause_generation_mode;  // both of them: in_place, retract, abort
  Flag<int64_t> rollout_num_threads{0};     // 0: half of num_threads
  Flag<std::optional<int64_t>>
      async_max_concurrent_samples;  // the same as sglang_server_concurrency
  Flag<std::string> rollout_submission_granularity{"sample"};
  Flag<bool> deterministic_schedule{false};
  Flag<int64_t> schedule_round{64};        // tokens of each sample
  Flag<int64_t> schedule_train_rounds{1};  // of one training step

  /// Engines in processes of their own, from --rollout-num-gpus (config/rules_engines.cpp); 0: one
  /// in this process.
  Flag<int64_t> num_engine_workers{0};

  /// The engine reads the weights that the trainer changes; otherwise it has its own.
  bool shares_weights() const { return num_engine_workers == 0 && (!train_async || colocate); }
  int64_t num_engines() const { return num_engine_workers > 0 ? num_engine_workers : 1; }
};

/// Engines in processes of their own, without --colocate.
struct EngineWorkerFlags {
  Flag<std::optional<int64_t>> rollout_num_gpus;  // of all engines
  Flag<int64_t> rollout_num_gpus_per_engine{1};
  Flag<bool> use_fault_tolerance{false};
  Flag<double> rollout_health_check_interval{30};   // seconds, as the next
  Flag<double> rollout_health_check_timeout{30};    // without an answer, or without progress
  Flag<double> rollout_health_check_first_wait{0};  // before the first check of an engine
  Flag<int64_t> max_restarts{3};                    // of one engine, without progress between them
  Flag<int64_t> update_weight_buffer_size{int64_t{512} << 20};  // bytes
  /// full, or delta; "disk" becomes full over disk (config/rules_engines.cpp).
  Flag<std::string> update_weight_mode{"full"};
  Flag<std::string> update_weight_transport{"nccl"};  // over the engines' connections, or disk
  Flag<std::string> update_weight_disk_dir;
  Flag<bool> update_weight_disk_keep_files{false};
  Flag<std::string> update_weight_delta_encoding{"xor"};  // or overwrite
  Flag<std::string> custom_update_weight_post_write_path;
};

/// The engine of this run: batch, cache, memory.
struct EngineFlags {
  Flag<int64_t> sglang_server_concurrency{512};
  Flag<int64_t> sglang_max_running_requests{256};
  Flag<int64_t> sglang_chunked_prefill_size{2048};
  Flag<std::optional<int64_t>> sglang_context_length;
  Flag<bool> sglang_disable_radix_cache{false};
  Flag<std::string> sglang_kv_cache_dtype{"auto"};
  Flag<double> kv_cache_gb{
      0};  // 0: 2 on the CPU; on a GPU what a full batch needs, if there is room
  Flag<std::optional<double>> sglang_mem_fraction_static;
  Flag<bool> offload{false};  // both of the next, as the original means it
  Flag<bool> offload_rollout{false};
  Flag<bool> no_offload_rollout{false};

  /// --sglang-kv-cache-dtype in the engine's words.
  std::string kv_cache_dtype() const;
};

/// The original's name for a teacher that is a server: its functions are built in.
inline constexpr std::string_view kTeacherModule = "slime.rollout.on_policy_distillation.";

/// Where scores come from.
struct RewardFlags {
  Flag<std::string> rm_type;
  Flag<bool> no_rm_strict{false};
  Flag<std::string> reward_key;
  Flag<std::string> eval_reward_key;
  Flag<std::optional<double>> reward_timeout_seconds;  // default: 30, of a call of a server 120
  Flag<int64_t> reward_threads{1};
  Flag<std::string> rm_url;
  Flag<int64_t> remote_rm_attempts{10};
  Flag<std::optional<int64_t>> overlong_buffer_len;
  Flag<double> overlong_penalty_factor{1.0};
  Flag<std::string> custom_rm_path;
  Flag<std::string> plugin_python{"python3"};
  Flag<int64_t> plugin_hosts{1};
  Flag<double> plugin_timeout_seconds{120};
  Flag<double> plugin_memory_gb{16};  // of a host and what it starts; 0: as much as there is
  Flag<bool> plugin_repeat_lost_calls{false};

  /// Whether scores come from a function of the user's, and not from what is built in.
  bool has_users_reward() const {
    return !custom_rm_path.empty() && !custom_rm_path.starts_with(kTeacherModule);
  }
  Flag<std::string> custom_reward_post_process_path;
  bool has_users_post_process() const {
    return !custom_reward_post_process_path.empty() &&
           !custom_reward_post_process_path.starts_with(kTeacherModule);
  }
};

/// Functions of the user's around generation (docs/plugins.md). Empty paths name none.
struct HookFlags {
  Flag<bool> group_rm{false};  // the reward function gets all samples of a prompt at once
  Flag<std::vector<std::string>> rollout_sample_hook_path;
  Flag<std::string> buffer_filter_path;
  Flag<std::string> rollout_sample_filter_path;
  Flag<std::string> rollout_all_samples_process_path;
  Flag<std::string> custom_convert_samples_to_train_data_path;
  Flag<std::string> custom_rollout_log_function_path;
  Flag<std::string> custom_eval_rollout_log_function_path;
};

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
  Flag<bool> use_rollout_logprobs{false};
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
  Flag<bool> moe_router_enable_expert_bias{false};
  Flag<std::optional<double>> moe_router_bias_update_rate;  // default 1e-3
  Flag<bool> use_opsm{false};
  Flag<double> opsm_delta{1e-4};
  Flag<bool> use_opd{false};
  Flag<std::string> opd_type;
  Flag<double> opd_kl_coef{1.0};
  Flag<std::string> opd_teacher_load;
  Flag<std::string> custom_pg_loss_reducer_function_path;

  bool is_supervised() const { return loss_type == "sft_loss"; }
  bool is_preference() const { return loss_type == "dpo_loss"; }
  /// Rows are trained on as they are: no engine, no reward.
  bool trains_on_rows() const { return is_supervised() || is_preference(); }
  bool has_critic() const { return advantage_estimator == "ppo" && !trains_on_rows(); }
  bool needs_reference() const {
    return is_preference() || (!is_supervised() && (kl_coef != 0.0 || use_kl_loss));
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
    return uses_icepop() || uses_mis() ? "" : custom_tis_function_path.get();
  }
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
  Flag<bool> recompute_activations{false};
  Flag<bool> no_prefix_sharing{false};
};

/// Held-out data sets: how often, with which rules.
struct EvalFlags {
  Flag<std::vector<std::string>> eval_prompt_data;  // name path pairs
  Flag<std::string> eval_config;                    // YAML file, wins over eval_prompt_data
  Flag<std::optional<int64_t>> eval_interval;
  Flag<bool> skip_eval_before_train{false};
  Flag<std::string> eval_input_key;
  Flag<std::string> eval_label_key;
  Flag<std::string> eval_tool_key;
  Flag<int64_t> n_samples_per_eval_prompt{1};
  Flag<std::optional<double>> eval_temperature;
  Flag<std::optional<double>> eval_top_p;
  Flag<std::optional<int64_t>> eval_top_k;
  Flag<std::optional<int64_t>> eval_max_response_len;
  Flag<std::optional<int64_t>> eval_max_prompt_len;
  Flag<std::optional<int64_t>> eval_max_context_len;
  Flag<std::optional<int64_t>> eval_min_new_tokens;
  Flag<bool> eval_leave_out_failed{false};
  Flag<std::string> eval_function_path{"slime.rollout.sglang_rollout.generate_rollout"};
};

/// Dumps, traces, tracking.
struct OutputFlags {
  Flag<std::string> save_debug_rollout_data;
  Flag<std::string> load_debug_rollout_data;
  Flag<std::string> dump_details;
  Flag<bool> debug_rollout_only{false};
  Flag<bool> check_weight_update_equal{false};
  Flag<bool> debug_train_only{false};
  Flag<bool> no_save_rollouts{false};
  Flag<double> rollout_files_mb_per_step{256};  // of RUN_DIR/rollouts
  Flag<double> rollout_files_gb{20};
  Flag<bool> profile{false};  // write a trace of rollouts [profile_step_start, profile_step_end)
  Flag<int64_t> profile_step_start{10};
  Flag<int64_t> profile_step_end{12};
  Flag<bool> log_passrate{false};
  Flag<bool> log_multi_turn{false};
  Flag<std::string> log_reward_category;
  Flag<double> load_debug_rollout_data_subsample{1.0};
  Flag<bool> use_wandb{false};
  Flag<std::string> wandb_mode;
  Flag<std::string> wandb_dir;
  Flag<std::string> wandb_key;
  Flag<std::string> wandb_host;
  Flag<std::string> wandb_team;
  Flag<std::string> wandb_group;
  Flag<std::string> wandb_project;
  Flag<std::string> wandb_run_id;
  Flag<bool> disable_wandb_random_suffix{false};
  Flag<bool> wandb_always_use_train_step{false};
};

/// The shape a script expects; checked against config.json when given.
struct ShapeFlags {
  Flag<std::optional<int64_t>> num_layers;
  Flag<std::optional<int64_t>> hidden_size;
  Flag<std::optional<int64_t>> ffn_hidden_size;
  Flag<std::optional<int64_t>> num_attention_heads;
  Flag<std::optional<int64_t>> num_query_groups;
  Flag<std::optional<int64_t>> kv_channels;
  Flag<std::optional<int64_t>> vocab_size;
  Flag<std::optional<double>> rotary_base;
  Flag<std::optional<double>> norm_epsilon;
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
    return expert_tensor_parallel_size.value_or(tensor_model_parallel_size);
  }
  /// Ranges of layers of a pipeline stage.
  int64_t pipeline_chunks() const { return num_virtual_stages_per_pipeline_rank.value_or(1); }
  /// Micro-batches of a rank come in groups of so many (spec section 12.3).
  int64_t micro_batch_group() const {
    return pipeline_chunks() > 1 ? pipeline_model_parallel_size : 1;
  }
};

struct RunConfig : ModelFlags,
                   DataFlags,
                   RolloutFlags,
                   AsyncFlags,
                   EngineFlags,
                   EngineWorkerFlags,
                   RewardFlags,
                   HookFlags,
                   AlgorithmFlags,
                   TrainerFunctionFlags,
                   OptimizerFlags,
                   BatchFlags,
                   EvalFlags,
                   OutputFlags,
                   ShapeFlags,
                   ParallelFlags {
  /// This configuration with the critic's overrides of --megatron-config-path, if there are any.
  std::shared_ptr<const RunConfig> critic;

  /// `slime train` updates the engine after every rollout; a dump says nothing of its engine, and is
  /// trained as the run that drew it was.
  bool has_update_interval() const { return train_async || !load_debug_rollout_data.empty(); }

  /// Responses are drawn by engines of this run.
  bool generates() const {
    return !trains_on_rows() && !debug_train_only && load_debug_rollout_data.empty();
  }

  /// An engine on the device of every rank that trains, which take turns (roles/rank_engines.h): on GPUs
  /// wherever they can be, on CPUs, whose cores they share, where --rollout-num-gpus is the number of
  /// ranks and --colocate is given.
  bool has_engine_on_each_rank() const {
    const bool draws_while_nobody_trains = generates() && !debug_rollout_only && shares_weights();
    // A schedule that repeats asks one engine, whose batches repeat.
    if (world_size() == 1 || !draws_while_nobody_trains || deterministic_schedule) return false;
    return device != "cpu" || (colocate && rollout_num_gpus == world_size());
  }
  /// Ranks that make up one of those engines; 1: it is its device's alone.
  int64_t ranks_of_own_engine() const {
    return has_engine_on_each_rank() ? rollout_num_gpus_per_engine : 1;
  }

  /// Samples per optimizer step once everything is known: --global-batch-size, or from
  /// --num-steps-per-rollout.
  int64_t samples_per_step() const;
  /// Rollout executions of a rollout step; a pair of preferences is one.
  int64_t samples_per_rollout() const {
    return is_preference() ? rollout_batch_size : rollout_batch_size * n_samples_per_prompt;
  }
};

}  // namespace slime::config
