#pragma once

/// Everything a user can set for `slime train`, as one flat value.
///
/// Names are the words of the flags with `_` for `-`; defaults are the original's (spec section
/// 20). The flag table (loop/flag_table.h) maps words to members; nothing else knows the words. A
/// RunConfig that came out of `parse_flags` and `validate` is complete and free of contradictions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slime::loop {

struct RunConfig {
  // model and checkpoints
  std::string hf_checkpoint;  // directory of the model to train
  std::string ref_load;       // reference model; default: hf_checkpoint
  std::string load;           // checkpoint folder to resume from; default: save, when it has one
  std::string save;           // checkpoint folder; default: run_dir
  std::optional<int64_t> save_interval;  // rollouts; the last one is always saved
  int64_t keep_checkpoints = 2;          // older ones are deleted; 0 keeps all
  bool no_save_optim = false;
  bool no_load_optim = false;
  std::optional<int64_t> start_rollout_id;
  std::string run_dir;  // metrics, rollouts, report, checkpoints; default: runs/<model>-<time>
  std::string dtype = "bfloat16";  // of the weights; the optimizer's master copy is float32
  bool bf16 = false;
  bool fp16 = false;
  bool fp32 = false;
  int64_t seed = 1234;
  int64_t num_threads = 0;  // 0: all cores

  // data
  std::vector<std::string> prompt_data;
  std::string input_key = "input";
  std::string label_key;
  std::string metadata_key = "metadata";
  std::string tool_key = "tools";
  bool apply_chat_template = false;
  std::string apply_chat_template_kwargs = "{}";
  bool rollout_shuffle = false;
  int64_t rollout_seed = 42;
  std::optional<int64_t> num_rollout;
  std::optional<int64_t> num_epoch;
  int64_t rollout_batch_size = 0;
  int64_t n_samples_per_prompt = 1;
  std::string loss_mask_type = "qwen";

  // rollout
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
  std::string dynamic_sampling_filter_path;
  bool partial_rollout = false;
  bool mask_offpolicy_in_partial_rollout = false;
  int64_t sglang_server_concurrency = 512;
  int64_t sglang_max_running_requests = 256;
  int64_t sglang_chunked_prefill_size = 2048;
  std::optional<int64_t> sglang_context_length;
  bool sglang_disable_radix_cache = false;
  double kv_cache_gb = 2.0;

  // reward
  std::string rm_type;
  std::string reward_key;
  std::string eval_reward_key;
  double reward_timeout_seconds = 30;

  // algorithm
  std::string loss_type = "policy_loss";
  std::string advantage_estimator = "grpo";
  double eps_clip = 0.2;
  std::optional<double> eps_clip_high;
  std::optional<double> eps_clip_c;
  double kl_coef = 0.0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.0;
  std::string kl_loss_type = "k1";
  bool use_unbiased_kl = false;
  std::optional<int64_t> ref_update_interval;
  double entropy_coef = 0.0;
  double gamma = 1.0;
  bool normalize_advantages = false;
  bool disable_grpo_std_normalization = false;
  bool disable_rewards_normalization = false;
  bool calculate_per_token_loss = false;
  bool use_rollout_logprobs = false;
  bool use_tis = false;
  double tis_clip = 2.0;
  double tis_clip_low = 0.0;
  bool use_opsm = false;
  double opsm_delta = 1e-4;

  // optimizer
  std::string optimizer = "adam";
  double lr = 1e-6;
  double min_lr = 0.0;
  std::string lr_decay_style = "linear";
  std::optional<int64_t> lr_decay_iters;
  int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction;
  double lr_warmup_init = 0.0;
  double weight_decay = 0.01;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double clip_grad = 1.0;

  // batches
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> num_steps_per_rollout;
  int64_t micro_batch_size = 1;
  bool use_dynamic_batch_size = false;
  std::optional<int64_t> max_tokens_per_gpu;
  bool balance_data = false;
  bool balance_by_flops = false;
  std::string recompute_granularity;
  bool no_prefix_sharing = false;

  // evaluation
  std::vector<std::string> eval_prompt_data;  // name path pairs
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
  std::optional<int64_t> eval_min_new_tokens;

  // what is written
  std::string save_debug_rollout_data;
  std::string load_debug_rollout_data;
  std::string dump_details;
  bool debug_rollout_only = false;
  bool debug_train_only = false;
  bool no_save_rollouts = false;
  bool log_passrate = false;

  // model shape, checked against config.json when given
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> ffn_hidden_size;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_query_groups;
  std::optional<int64_t> kv_channels;
  std::optional<int64_t> vocab_size;
  std::optional<double> rotary_base;
  std::optional<double> norm_epsilon;

  // parallel sizes: one process for now
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t expert_model_parallel_size = 1;
  int64_t expert_tensor_parallel_size = 1;
  int64_t actor_num_nodes = 1;
  int64_t actor_num_gpus_per_node = 1;

  /// Samples per optimizer step once everything is known: --global-batch-size, or from
  /// --num-steps-per-rollout.
  int64_t samples_per_step() const;
  int64_t samples_per_rollout() const { return rollout_batch_size * n_samples_per_prompt; }
  bool is_supervised() const { return loss_type == "sft_loss"; }
  bool needs_reference() const { return !is_supervised() && (kl_coef != 0.0 || use_kl_loss); }
};

}  // namespace slime::loop
