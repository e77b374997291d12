#pragma once

/// Flags of the model, its checkpoints, evaluation and output (config/run_config.h).
///
/// Inputs and outputs of a run.

#include <cstdint>
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
  Flag<std::optional<int64_t>> ckpt_step;  // go on from the checkpoint of this rollout
  Flag<bool> overwrite{false};             // delete what an earlier run left in run_dir
  Flag<std::string>
      run_dir;  // metrics, rollouts, report, checkpoints; default: runs/<model>-<time>
  /// auto until the run has chosen (setup/run_devices.h), where users say nothing.
  Flag<std::string> device{"cpu"};      // or cuda: trainer and engine share the first visible GPU
  Flag<std::string> dtype{"bfloat16"};  // of the weights; the optimizer's master copy is float32
  Flag<int64_t> seed{1234};
  Flag<int64_t> num_threads{0};            // 0: all cores
  Flag<std::string> custom_config_path;    // YAML whose keys win over the command line
  Flag<std::string> megatron_config_path;  // YAML with overrides for actor and critic
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
  Flag<bool> view{false};      // a process serves the run's page while it goes on
  Flag<int64_t> view_port{0};  // 0: one that is free
  /// Trackers beside the run's own files: wandb (which sets use_wandb), mlflow, trackio.
  Flag<std::vector<std::string>> report_to;
  Flag<std::string> tracker_project;
  Flag<std::string> tracker_run_name;
  Flag<int64_t> log_samples{3};  // of each step, as text
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
  Flag<std::optional<double>> rotary_percent;
  // Of experts.
  Flag<std::optional<int64_t>> num_experts;
  Flag<std::optional<int64_t>> moe_ffn_hidden_size;
  Flag<std::optional<int64_t>> moe_router_topk;
  Flag<std::optional<int64_t>> moe_shared_expert_intermediate_size;
  Flag<std::optional<int64_t>> moe_router_num_groups;
  Flag<std::optional<int64_t>> moe_router_group_topk;
  Flag<std::optional<double>> moe_router_topk_scaling_factor;
  // Of latent attention.
  Flag<std::optional<int64_t>> q_lora_rank;
  Flag<std::optional<int64_t>> kv_lora_rank;
  Flag<std::optional<int64_t>> qk_head_dim;
  Flag<std::optional<int64_t>> qk_pos_emb_head_dim;
  Flag<std::optional<int64_t>> v_head_dim;
};

}  // namespace slime::config
