#pragma once

/// Flags of prompts, generation and scores (config/run_config.h).
///
/// Data, rollout, asynchronous generation, engines, rewards, functions of the user's around them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/flag.h"

namespace slime::config {

/// Directory of an EAGLE-3 draft model.
inline constexpr std::string_view kDraftModelFlag = "--rollout-draft-model";

/// Prompt files and how their rows are read.
struct DataFlags {
  Flag<std::vector<std::string>> prompt_data;
  Flag<std::string> input_key{"input"};
  Flag<std::string> label_key;
  Flag<std::string> metadata_key{"metadata"};
  Flag<std::string> tool_key{"tools"};
  Flag<std::vector<std::string>> rename_columns;  // old=new, before the keys above are looked up
  Flag<std::string> data_format{"auto"};          // a published schema, or none
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
      false};                                // prompts are the user's own functions' business
  Flag<std::string> environment;             // kind:name; gives the prompts, generates and scores
  Flag<std::string> environment_args{"{}"};  // a JSON object of its own settings
  Flag<std::string> rollout_buffer_url;  // of `slime buffer`, for rollout functions that read it
  Flag<std::string> rollout_task_type{"math"};  // which of its generators draws
  Flag<int64_t> fetch_trajectory_retry_times{
      -1};  // failed reads in a row that end the run; -1: none
};

/// The durable queue between generation and training.
struct QueueFlags {
  Flag<std::string> rollout_data_transport{"object-store"};
  Flag<std::string> rollout_data_dir;
  Flag<std::string> rollout_storage_profile{"local"};
  Flag<std::string> rollout_storage_declaration;
  Flag<std::string> rollout_queue_run_id{"rollout"};
  Flag<bool> rollout_queue_online_gc{false};
  Flag<std::optional<int64_t>> rollout_queue_segment_mib;
};

/// Samples of a step, and the rules of each response.
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

/// --max-staleness of runs whose groups may have any age.
inline constexpr int64_t kAnyAge = 1'000'000;

/// Generation beside training (docs/how/asynchronous_training.md).
struct AsyncFlags {
  Flag<bool> train_async{false};  // `slime train-async`
  Flag<bool> colocate{
      false};  // trainer and engine take turns on one device, with one set of weights
  Flag<int64_t> update_weights_interval{1};  // steps between updates of the engine
  Flag<int64_t> flush_cache_interval{1};     // updates between two that drop the cache
  Flag<bool> buffer_sort_by_staleness{false};
  Flag<std::optional<int64_t>> max_staleness;      // in updates; default 1
  Flag<std::optional<int64_t>> async_buffer_size;  // finished batches that may wait; default 2
  Flag<std::string> staleness_policy{"wait"};
  Flag<std::string> async_order{"dispatch"};
  Flag<std::string> update_mode{"suspend"};
  Flag<std::string> restart_mode{"sibling"};
  Flag<std::string> kv_on_update{"keep"};
  Flag<int64_t> rollout_num_threads{0};  // 0: half of num_threads
  Flag<bool> deterministic_schedule{false};
  Flag<int64_t> schedule_round{64};        // tokens of each sample
  Flag<int64_t> schedule_train_rounds{1};  // of one training step

  /// Engines in processes of their own, from --rollout-num-gpus or --rollout-external-engine-addrs
  /// (config/rules_engines.cpp); 0: one in this process.
  Flag<int64_t> num_engine_workers{0};

  /// Engines generate while nobody trains, on the devices that train.
  bool takes_turns() const { return num_engine_workers == 0 && (!train_async || colocate); }
  int64_t num_engines() const { return num_engine_workers > 0 ? num_engine_workers : 1; }
  /// Of a stream whose groups may have any age.
  bool bounds_age() const { return max_staleness.value_or(0) < kAnyAge; }
};

/// Engines in processes of their own, without --colocate.
struct EngineWorkerFlags {
  Flag<std::vector<std::string>> rollout_external_engine_addrs;  // servers that others started
  Flag<std::optional<int64_t>> rollout_num_gpus;                 // of all engines
  Flag<int64_t> rollout_num_gpus_per_engine{1};
  Flag<bool> use_fault_tolerance{false};
  Flag<double> rollout_health_check_interval{30};   // seconds, as the next
  Flag<double> rollout_health_check_timeout{30};    // without an answer, or without progress
  Flag<double> rollout_health_check_first_wait{0};  // before the first check of an engine
  Flag<std::string> rollout_session_id;             // of engines that outlive the trainer
  Flag<double> rollout_cleanup_timeout{60};         // seconds
  Flag<double> rollout_session_minutes{60};         // that engines wait for another trainer
  Flag<int64_t> max_restarts{3};                    // of one engine, without progress between them
  Flag<int64_t> update_weight_buffer_size{int64_t{512} << 20};  // bytes
  /// full, or delta; "disk" becomes full over disk (config/rules_engines.cpp).
  Flag<std::string> update_weight_mode{"full"};
  Flag<std::string> update_weight_transport{"nccl"};  // over the engines' connections, or disk
  Flag<std::string> update_weight_disk_dir;
  Flag<bool> update_weight_disk_keep_files{false};
  Flag<std::string> update_weight_delta_encoding{"xor"};  // or overwrite
  Flag<std::string> custom_update_weight_post_write_path;

  /// The engines are servers that somebody else started: none of this run's devices are theirs.
  bool has_external_engines() const { return !rollout_external_engine_addrs.get().empty(); }
};

/// Engines with settings of their own (config/engine_groups.h).
struct EngineGroup {
  int64_t num_engines = 1;
  std::map<std::string, std::string> flags;  // and their words
};

/// Of RunConfig::verify_tokens(), on GPUs.
inline constexpr int64_t kUsualVerifyTokens = 16;
inline constexpr int64_t kMostVerifyTokens = 64;

/// The engine of this run: batch, cache, memory.
struct EngineFlags {
  Flag<int64_t> sglang_server_concurrency{512};
  Flag<int64_t> sglang_max_running_requests{256};
  Flag<int64_t> sglang_chunked_prefill_size{2048};
  Flag<std::optional<int64_t>> sglang_context_length;
  Flag<bool> sglang_disable_radix_cache{false};
  Flag<std::string> sglang_kv_cache_dtype{"auto"};
  Flag<std::string> sglang_grammar_backend{"xgrammar"};
  Flag<bool> sglang_constrained_json_disable_any_whitespace{false};
  Flag<std::string> rollout_precision{"auto"};
  Flag<std::string> rollout_drafts{"none"};           // docs/speculation.md
  Flag<std::optional<int64_t>> rollout_draft_tokens;  // most of a sequence and step; default 7
  Flag<std::string> rollout_draft_model;              // kDraftModelFlag
  Flag<bool> rollout_draft_always{false};
  Flag<int64_t> rollout_draft_text_mb{256};
  Flag<std::optional<int64_t>> rollout_verify_tokens;  // RunConfig::verify_tokens()
  Flag<std::string> rollout_noise{"sample"};
  /// SGLang's words for them (config/rules_drafts.cpp).
  Flag<std::string> sglang_speculative_algorithm;
  Flag<std::optional<int64_t>> sglang_speculative_num_steps;
  Flag<std::optional<int64_t>> sglang_speculative_num_draft_tokens;
  Flag<std::optional<int64_t>> sglang_speculative_eagle_topk;
  Flag<std::string> sglang_config;         // YAML of groups of engines
  std::vector<EngineGroup> engine_groups;  // what it says, where groups differ
  Flag<double> kv_cache_gb{
      0};  // 0: 2 on the CPU; on a GPU what a full batch needs, if there is room
  Flag<std::optional<double>> sglang_mem_fraction_static;
  Flag<bool> offload_rollout{false};
  Flag<bool> no_offload_rollout{false};

  /// --sglang-kv-cache-dtype in the engine's words.
  std::string kv_cache_dtype() const;
  bool has_drafts() const { return rollout_drafts != "none"; }
  /// What its word names, by a look that does not count as one: the model may have no draft layer.
  bool names_texts() const { return rollout_drafts.peek().starts_with("suffix"); }
  bool names_draft_layer() const { return rollout_drafts.peek().ends_with("mtp"); }
  bool names_draft_model() const { return rollout_drafts.peek().ends_with("eagle3"); }
  /// The engine's matrices are stored as codes (docs/decisions/0127-fp8-rollout.md).
  bool has_codes() const { return rollout_precision == "fp8"; }
};

/// The original's name for a teacher that is a server: its functions are built in.
inline constexpr std::string_view kTeacherModule = "slime.rollout.on_policy_distillation.";

/// Sources of rewards.
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

}  // namespace slime::config
