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

namespace slime::config {

/// The model, its checkpoints, the device.
struct ModelFlags {
  std::string hf_checkpoint;  // directory of the model to train
  std::string ref_load;       // reference model; default: hf_checkpoint
  std::string load;           // checkpoint folder to resume from; default: save, when it has one
  std::string save;           // checkpoint folder; default: run_dir
  bool dry_run = false;       // the command only says what a run would do
  std::optional<int64_t> save_interval;  // rollouts; the last one is always saved
  int64_t keep_checkpoints = 2;          // older ones are deleted; 0 keeps all
  bool no_save_optim = false;
  bool no_load_optim = false;
  bool finetune = false;                // --load gives weights alone; the run begins at rollout 0
  bool allow_other_experiment = false;  // go on from another model's or reward's checkpoint
  std::optional<int64_t> start_rollout_id;
  bool overwrite = false;  // delete what an earlier run left in run_dir
  std::string run_dir;     // metrics, rollouts, report, checkpoints; default: runs/<model>-<time>
  std::string device = "cpu";      // or cuda: trainer and engine share the first visible GPU
  std::string dtype = "bfloat16";  // of the weights; the optimizer's master copy is float32
  bool bf16 = false;
  bool fp16 = false;
  bool fp32 = false;
  int64_t seed = 1234;
  int64_t num_threads = 0;           // 0: all cores
  std::string custom_config_path;    // YAML whose keys win over the command line
  std::string megatron_config_path;  // YAML with overrides for actor and critic
};

/// Prompt files and how their rows are read.
struct DataFlags {
  std::vector<std::string> prompt_data;
  std::string input_key = "input";
  std::string label_key;
  std::string metadata_key = "metadata";
  std::string tool_key = "tools";
  std::string chosen_key = "chosen";
  std::string rejected_key = "rejected";
  bool apply_chat_template = false;
  std::string apply_chat_template_kwargs = "{}";
  bool rollout_shuffle = false;
  int64_t rollout_seed = 42;
  std::optional<int64_t> num_rollout;
  std::optional<int64_t> num_epoch;
  int64_t rollout_batch_size = 0;
  int64_t n_samples_per_prompt = 1;
  int64_t num_data_workers = 0;  // 0: all cores
  bool streaming_data = false;
  std::string loss_mask_type = "qwen";
  std::string data_source_path = "slime.rollout.data_source.RolloutDataSourceWithBuffer";
  bool disable_rollout_global_dataset = false;  // prompts are the user's own functions' business
  std::string rollout_buffer_url;          // of `slime buffer`, for rollout functions that read it
  std::string rollout_task_type = "math";  // which of its generators draws
  int64_t fetch_trajectory_retry_times = -1;  // failed reads in a row that end the run; -1: none
};

/// What is drawn for a step, and the rules of each response.
struct RolloutFlags {
  std::string rollout_function_path = "slime.rollout.sglang_rollout.generate_rollout";
  double rollout_temperature = 1.0;
  double rollout_top_p = 1.0;
  int64_t rollout_top_k = -1;
  std::optional<int64_t> rollout_max_context_len;
  std::optional<int64_t> rollout_max_prompt_len;
  std::optional<int64_t> rollout_max_response_len;
  bool rollout_skip_special_tokens = false;
  std::vector<std::string> rollout_stop;
  std::vector<int64_t> rollout_stop_token_ids;
  std::optional<int64_t> over_sampling_batch_size;
  std::string over_sampling_refill = "step";
  std::string dynamic_sampling_filter_path;
  double max_filter_ratio = 64;         // dropped in a step, for each group of it; 0: no limit
  int64_t max_failed_groups = 64;       // of a step, whatever their share
  double max_failed_group_share = 0.5;  // beyond that: of the groups of a step that ended
  int64_t max_untrained_steps = 10;     // in a row; 0: no limit
  bool partial_rollout = false;
  bool mask_offpolicy_in_partial_rollout = false;
  bool keep_old_actor = false;
  std::string custom_generate_function_path;
  std::optional<double> generate_timeout_seconds;  // set behind validation
};

/// Generation beside training (docs/decisions/0080-asynchronous-training.md).
struct AsyncFlags {
  bool train_async = false;  // `slime train-async`
  bool fully_async = false;  // the same, in the words of another family
  bool colocate = false;     // trainer and engine take turns on one device, with one set of weights
  int64_t update_weights_interval = 1;                // steps between updates of the engine
  std::optional<int64_t> max_staleness;               // in updates; default 1
  std::optional<int64_t> max_weight_staleness;        // the same
  std::optional<int64_t> max_policy_version_lag;      // the same
  std::optional<int64_t> fully_async_version_window;  // the same
  std::optional<double> staleness_threshold;          // the same, rounded down
  std::optional<int64_t> async_buffer_size;           // finished batches that may wait; default 2
  std::optional<double> async_data_buffer_capacity_factor;   // the same
  std::optional<int64_t> fully_async_max_completed_samples;  // the same, in samples
  std::string fully_async_buffer_policy;     // async_order and staleness_policy in one word
  bool keep_cache_on_weight_update = false;  // update_mode suspend, kv_on_update keep
  std::string staleness_policy = "wait";
  std::string async_unused_samples_handler;  // the same: drop or retry
  std::string async_order = "dispatch";
  std::string update_mode = "suspend";
  std::string restart_mode = "sibling";
  std::string kv_on_update = "keep";
  std::string pause_generation_mode;                    // both of them: in_place, retract, abort
  int64_t rollout_num_threads = 0;                      // 0: half of num_threads
  std::optional<int64_t> async_max_concurrent_samples;  // the same as sglang_server_concurrency
  std::string rollout_submission_granularity = "sample";
  bool deterministic_schedule = false;
  int64_t schedule_round = 64;        // tokens of each sample
  int64_t schedule_train_rounds = 1;  // of one training step

  /// Engines in processes of their own, from --rollout-num-gpus (config/rules_engines.cpp); 0: one
  /// in this process.
  int64_t num_engine_workers = 0;

  /// The engine reads the weights that the trainer changes; otherwise it has its own.
  bool shares_weights() const { return num_engine_workers == 0 && (!train_async || colocate); }
  int64_t num_engines() const { return num_engine_workers > 0 ? num_engine_workers : 1; }
};

/// Engines in processes of their own, without --colocate.
struct EngineWorkerFlags {
  std::optional<int64_t> rollout_num_gpus;  // of all engines
  int64_t rollout_num_gpus_per_engine = 1;
  bool use_fault_tolerance = false;
  double rollout_health_check_interval = 30;   // seconds, as the next
  double rollout_health_check_timeout = 30;    // without an answer, or without progress
  double rollout_health_check_first_wait = 0;  // before the first check of an engine
  int64_t max_restarts = 3;                    // of one engine, without progress between them
  int64_t update_weight_buffer_size = int64_t{512} << 20;  // bytes
  /// full, or delta; "disk" becomes full over disk (config/rules_engines.cpp).
  std::string update_weight_mode = "full";
  std::string update_weight_transport = "nccl";  // over the engines' connections, or disk
  std::string update_weight_disk_dir;
  bool update_weight_disk_keep_files = false;
  std::string update_weight_delta_encoding = "xor";  // or overwrite
  std::string custom_update_weight_post_write_path;
};

/// The engine of this run: batch, cache, memory.
struct EngineFlags {
  int64_t sglang_server_concurrency = 512;
  int64_t sglang_max_running_requests = 256;
  int64_t sglang_chunked_prefill_size = 2048;
  std::optional<int64_t> sglang_context_length;
  bool sglang_disable_radix_cache = false;
  std::string sglang_kv_cache_dtype = "auto";
  double kv_cache_gb = 0;  // 0: 2 on the CPU; on a GPU what a full batch needs, if there is room
  std::optional<double> sglang_mem_fraction_static;
  bool offload = false;  // both of the next, as the original means it
  bool offload_rollout = false;
  bool no_offload_rollout = false;

  /// --sglang-kv-cache-dtype in the engine's words.
  std::string kv_cache_dtype() const;
};

/// The original's name for a teacher that is a server: its functions are built in.
inline constexpr std::string_view kTeacherModule = "slime.rollout.on_policy_distillation.";

/// Where scores come from.
struct RewardFlags {
  std::string rm_type;
  bool no_rm_strict = false;
  std::string reward_key;
  std::string eval_reward_key;
  std::optional<double> reward_timeout_seconds;  // default: 30, of a call of a server 120
  int64_t reward_threads = 1;
  std::string rm_url;
  int64_t remote_rm_attempts = 10;
  std::optional<int64_t> overlong_buffer_len;
  double overlong_penalty_factor = 1.0;
  std::string custom_rm_path;
  std::string plugin_python = "python3";
  int64_t plugin_hosts = 1;
  double plugin_timeout_seconds = 120;
  double plugin_memory_gb = 16;  // of a host and what it starts; 0: as much as there is

  /// Whether scores come from a function of the user's, and not from what is built in.
  bool has_users_reward() const {
    return !custom_rm_path.empty() && !custom_rm_path.starts_with(kTeacherModule);
  }
  std::string custom_reward_post_process_path;
  bool has_users_post_process() const {
    return !custom_reward_post_process_path.empty() &&
           !custom_reward_post_process_path.starts_with(kTeacherModule);
  }
};

/// Functions of the user's around generation (docs/plugins.md). Empty paths name none.
struct HookFlags {
  bool group_rm = false;  // the reward function gets all samples of a prompt at once
  std::vector<std::string> rollout_sample_hook_path;
  std::string buffer_filter_path;
  std::string rollout_sample_filter_path;
  std::string rollout_all_samples_process_path;
  std::string custom_convert_samples_to_train_data_path;
  std::string custom_rollout_log_function_path;
  std::string custom_eval_rollout_log_function_path;
};

/// Estimator, loss, corrections, reference, critic, teacher.
struct AlgorithmFlags {
  std::string loss_type = "policy_loss";
  std::string advantage_estimator = "grpo";
  double eps_clip = 0.2;
  std::optional<double> eps_clip_high;
  std::optional<double> eps_clip_c;
  double value_clip = 0.2;
  int64_t num_critic_only_steps = 0;
  std::string critic_load;
  double init_method_std = 0.02;
  double kl_coef = 0.0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.0;
  std::string kl_loss_type = "k1";
  bool use_unbiased_kl = false;
  std::optional<int64_t> ref_update_interval;
  double entropy_coef = 0.0;
  double gamma = 1.0;
  double lambd = 1.0;
  bool normalize_advantages = false;
  bool disable_grpo_std_normalization = false;
  bool disable_rewards_normalization = false;
  bool calculate_per_token_loss = false;
  std::optional<double> policy_loss_divisor;
  double dpo_beta = 0.1;
  double dpo_label_smoothing = 0.0;
  bool use_rollout_logprobs = false;
  bool use_tis = false;
  double tis_clip = 2.0;
  double tis_clip_low = 0.0;
  std::string custom_tis_function_path;
  bool get_mismatch_metrics = false;
  std::string tis_level = "token";
  std::string tis_mode = "truncate";
  std::optional<double> tis_lower_bound;
  double tis_upper_bound = 2.0;
  bool tis_batch_normalize = false;
  bool use_rs = false;
  std::string rs_level = "token";
  std::optional<double> rs_lower_bound;
  std::optional<double> rs_upper_bound;
  std::optional<double> rs_veto_threshold;
  bool use_routing_replay = false;
  bool use_rollout_routing_replay = false;
  std::string moe_router_load_balancing_type = "aux_loss";
  double moe_aux_loss_coeff = 0;
  double moe_z_loss_coeff = 0;
  bool moe_router_enable_expert_bias = false;
  std::optional<double> moe_router_bias_update_rate;  // default 1e-3
  bool use_opsm = false;
  double opsm_delta = 1e-4;
  bool use_opd = false;
  std::string opd_type;
  double opd_kl_coef = 1.0;
  std::string opd_teacher_load;
  std::string custom_pg_loss_reducer_function_path;

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
    return uses_built_in_reducer() ? "" : custom_pg_loss_reducer_function_path;
  }
  std::string users_correction() const {
    return uses_icepop() || uses_mis() ? "" : custom_tis_function_path;
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
  std::string custom_loss_function_path;
  std::string custom_loss_library;  // a shared library in the place of the function
  std::string custom_advantage_function_path;
  std::string rollout_data_postprocess_path;
  std::string custom_megatron_init_path;
  std::string custom_megatron_before_log_prob_hook_path;
  std::string custom_megatron_before_train_step_hook_path;
};

/// AdamW, its schedule, which weights are trained.
struct OptimizerFlags {
  std::string optimizer = "adam";
  double lr = 1e-6;
  double min_lr = 0.0;
  std::string lr_decay_style = "linear";
  std::optional<int64_t> lr_decay_iters;
  std::string lr_wsd_decay_style = "exponential";
  std::optional<int64_t> lr_wsd_decay_iters;
  int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction;
  double lr_warmup_init = 0.0;
  double weight_decay = 0.01;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double clip_grad = 1.0;
  bool reset_optimizer_states = false;
  bool use_stateless_adam = false;
  bool optimizer_cpu_offload = false;
  std::vector<std::string> only_train_params_name_list;
  std::vector<std::string> freeze_params_name_list;
  bool freeze_indexer = false;
};

/// Optimizer steps of a rollout and their micro-batches.
struct BatchFlags {
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> num_steps_per_rollout;
  int64_t micro_batch_size = 1;
  bool use_dynamic_batch_size = false;
  std::optional<int64_t> max_tokens_per_gpu;
  bool balance_data = false;
  bool balance_by_flops = false;
  std::string recompute_granularity;
  bool recompute_activations = false;
  bool no_prefix_sharing = false;
};

/// Held-out data sets: how often, with which rules.
struct EvalFlags {
  std::vector<std::string> eval_prompt_data;  // name path pairs
  std::string eval_config;                    // YAML file, wins over eval_prompt_data
  std::optional<int64_t> eval_interval;
  bool skip_eval_before_train = false;
  std::string eval_input_key;
  std::string eval_label_key;
  std::string eval_tool_key;
  int64_t n_samples_per_eval_prompt = 1;
  std::optional<double> eval_temperature;
  std::optional<double> eval_top_p;
  std::optional<int64_t> eval_top_k;
  std::optional<int64_t> eval_max_response_len;
  std::optional<int64_t> eval_max_prompt_len;
  std::optional<int64_t> eval_max_context_len;
  std::optional<int64_t> eval_min_new_tokens;
  bool eval_leave_out_failed = false;
  std::string eval_function_path = "slime.rollout.sglang_rollout.generate_rollout";
};

/// Dumps, traces, tracking.
struct OutputFlags {
  std::string save_debug_rollout_data;
  std::string load_debug_rollout_data;
  std::string dump_details;
  bool debug_rollout_only = false;
  bool check_weight_update_equal = false;
  bool debug_train_only = false;
  bool no_save_rollouts = false;
  bool profile = false;  // write a trace of rollouts [profile_step_start, profile_step_end)
  int64_t profile_step_start = 10;
  int64_t profile_step_end = 12;
  bool log_passrate = false;
  bool log_multi_turn = false;
  std::string log_reward_category;
  double load_debug_rollout_data_subsample = 1.0;
  bool use_wandb = false;
  std::string wandb_mode;
  std::string wandb_dir;
  std::string wandb_key;
  std::string wandb_host;
  std::string wandb_team;
  std::string wandb_group;
  std::string wandb_project;
  std::string wandb_run_id;
  bool disable_wandb_random_suffix = false;
  bool wandb_always_use_train_step = false;
};

/// The shape a script expects; checked against config.json when given.
struct ShapeFlags {
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> ffn_hidden_size;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_query_groups;
  std::optional<int64_t> kv_channels;
  std::optional<int64_t> vocab_size;
  std::optional<double> rotary_base;
  std::optional<double> norm_epsilon;
};

/// Parallel sizes, the hosts that ranks are on, how long one waits for another.
struct ParallelFlags {
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t expert_model_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size;  // without it: see expert_tensor_size()
  bool sequence_parallel = false;
  bool allgather_cp = false;
  std::optional<int64_t> decoder_first_pipeline_num_layers;
  std::optional<int64_t> decoder_last_pipeline_num_layers;
  std::optional<int64_t> num_virtual_stages_per_pipeline_rank;
  int64_t actor_num_nodes = 1;
  std::optional<int64_t> num_gpus_per_node;
  std::string launcher = "auto";
  double nodes_timeout_seconds = 1800;
  int64_t actor_num_gpus_per_node = 1;       // ranks that train
  int64_t distributed_timeout_minutes = 10;  // of a collective
  double worker_timeout_seconds = 20;        // without a sign of life from a rank

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

  /// An engine on the device of every rank that trains, which take turns (loop/rank_engines.h): on GPUs
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
