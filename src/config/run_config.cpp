#include "config/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "config/eval_config.h"
#include "config/parse_flags.h"
#include "config/secrets.h"
#include "core/error.h"
#include "core/json.h"

namespace slime::config {
namespace {

class Problems {
 public:
  explicit Problems(std::vector<std::string> found) : messages_(std::move(found)) {}
  void require(bool holds, std::string_view message) {
    if (!holds) messages_.emplace_back(message);
  }
  void throw_if_any(const std::vector<std::string>& notes) {
    if (messages_.empty()) return;
    messages_.insert(messages_.end(), notes.begin(), notes.end());
    for (std::string& message : messages_) message = without_passwords(message);
    throw ConfigError(messages_);
  }

 private:
  std::vector<std::string> messages_;
};

void choose_dtype(RunConfig& config, Problems& problems) {
  const int words =
      static_cast<int>(config.bf16) + static_cast<int>(config.fp16) + static_cast<int>(config.fp32);
  problems.require(words <= 1, "--bf16, --fp16, --fp32: choose one");
  if (config.bf16) config.dtype = "bfloat16";
  if (config.fp16) config.dtype = "float16";
  if (config.fp32) config.dtype = "float32";
}

void check_data(RunConfig& config, Problems& problems) {
  problems.require(!config.hf_checkpoint.empty(),
                   "--hf-checkpoint: the model directory is missing");
  if (!config.hf_checkpoint.empty()) {
    problems.require(std::filesystem::is_directory(config.hf_checkpoint),
                     fmt::format("--hf-checkpoint {}: no such directory", config.hf_checkpoint));
  }
  const bool has_data = !config.prompt_data.empty() || !config.load_debug_rollout_data.empty();
  problems.require(has_data, "--prompt-data: at least one JSON-lines or Parquet file is needed");
  problems.require(config.num_data_workers >= 0, "--num-data-workers: should not be negative");
  problems.require(!config.streaming_data || !config.rollout_shuffle,
                   "--streaming-data and --rollout-shuffle: a shuffle needs all rows; shuffle the "
                   "file once instead");
  problems.require(!config.streaming_data || config.num_rollout,
                   "--streaming-data: needs --num-rollout, the number of rows is not known");
  if (config.is_preference()) config.n_samples_per_prompt = 2;  // the preferred and the rejected
  problems.require(
      config.rollout_batch_size > 0,
      fmt::format("--rollout-batch-size {}: should be at least 1", config.rollout_batch_size));
  problems.require(
      config.n_samples_per_prompt > 0,
      fmt::format("--n-samples-per-prompt {}: should be at least 1", config.n_samples_per_prompt));
  problems.require(config.num_rollout || config.num_epoch,
                   "--num-rollout or --num-epoch: the length of the run is missing");
  problems.require(!config.num_rollout || *config.num_rollout >= 0,
                   "--num-rollout: should not be negative");
  problems.require(!config.num_epoch || *config.num_epoch >= 1,
                   "--num-epoch: should be at least 1");
  problems.require(
      config.label_key != config.input_key || config.label_key.empty(),
      fmt::format("--label-key {}: is the same field as --input-key", config.label_key));
  try {
    if (!parse_json(config.apply_chat_template_kwargs, "--apply-chat-template-kwargs")
             .is_object()) {
      problems.require(false, "--apply-chat-template-kwargs: should be a JSON object");
    }
  } catch (const ConfigError& error) {
    problems.require(false, error.what());
  }
}

/// Paths of Python that name what is built in.
void check_built_ins(const RunConfig& config, Problems& problems) {
  const auto require_built_in = [&](std::string_view flag, const std::string& path,
                                    std::initializer_list<std::string_view> built_in) {
    problems.require(std::ranges::find(built_in, path) != built_in.end(),
                     fmt::format("{} {}: runs user code; plug-ins come with the plug-in host (an "
                                 "issue of its own); built in is {}",
                                 flag, path, fmt::join(built_in, " or ")));
  };
  require_built_in("--data-source-path", config.data_source_path,
                   {"slime.rollout.data_source.RolloutDataSourceWithBuffer",
                    "slime.rollout.data_source.RolloutDataSource"});
  require_built_in("--eval-function-path", config.eval_function_path,
                   {"slime.rollout.sglang_rollout.generate_rollout"});
}

/// Evaluation generates. Where nothing does, its flags have no effect, and neither have they
/// without an interval.
void check_evaluation_runs(ParsedFlags& flags) {
  const RunConfig& config = flags.config;
  std::vector<std::string> ignored;
  for (const std::string& name : flags.given) {
    const bool is_evaluation = name.starts_with("--eval-") ||
                               name == "--n-samples-per-eval-prompt" ||
                               name == "--skip-eval-before-train";
    if (is_evaluation && std::ranges::find(ignored, name) == ignored.end()) ignored.push_back(name);
  }
  std::string why;
  if (config.trains_on_rows()) {
    why =
        fmt::format("--loss-type {} generates nothing, so nothing is evaluated", config.loss_type);
  } else if (!config.load_debug_rollout_data.empty()) {
    why = "--load-debug-rollout-data generates nothing, so nothing is evaluated";
  } else if (config.debug_train_only) {
    why = "--debug-train-only has no engine, so nothing is evaluated";
  } else if (!config.eval_interval) {
    why = "without --eval-interval nothing is evaluated";
  }
  if (!why.empty() && !ignored.empty())
    flags.warnings.push_back(fmt::format("{} {} no effect: {}", fmt::join(ignored, ", "),
                                         ignored.size() == 1 ? "has" : "have", why));
}

void check_memory(RunConfig& config, Problems& problems) {
  problems.require(config.kv_cache_gb >= 0, "--kv-cache-gb: should not be negative");
  const std::optional<double> share = config.sglang_mem_fraction_static;
  problems.require(!share || (*share > 0 && *share < 1),
                   "--sglang-mem-fraction-static: should be between 0 and 1");
  if (config.offload) config.offload_rollout = true;
  problems.require(!(config.offload_rollout && config.no_offload_rollout),
                   "--offload-rollout and --no-offload-rollout: choose one");
  problems.require(config.device == "cpu" || config.dtype != "float64",
                   "--device cuda --dtype float64: a GPU has bfloat16, float16 and float32");
}

void check_rollout(RunConfig& config, Problems& problems) {
  problems.require(
      config.rollout_temperature > 0,
      fmt::format("--rollout-temperature {}: should be above 0; the trainer divides by it",
                  config.rollout_temperature));
  problems.require(config.rollout_top_p > 0 && config.rollout_top_p <= 1,
                   fmt::format("--rollout-top-p {}: should be in (0, 1]", config.rollout_top_p));
  problems.require(
      config.rollout_top_k == -1 || config.rollout_top_k >= 1,
      fmt::format("--rollout-top-k {}: should be -1 (all) or at least 1", config.rollout_top_k));
  const bool generates = !config.trains_on_rows() && config.load_debug_rollout_data.empty();
  problems.require(!generates || config.rollout_max_response_len.value_or(0) > 0,
                   "--rollout-max-response-len: should be at least 1");
  problems.require(
      !generates || !config.rm_type.empty() || config.debug_rollout_only || config.use_opd,
      "--rm-type: a reward is needed (math, dapo, deepscaler, f1, gpqa, ifbench, random, "
      "remote_rm, boxed_...)");
  if (!config.over_sampling_batch_size) config.over_sampling_batch_size = config.rollout_batch_size;
  problems.require(
      *config.over_sampling_batch_size >= config.rollout_batch_size,
      fmt::format("--over-sampling-batch-size {}: should be at least --rollout-batch-size {}",
                  *config.over_sampling_batch_size, config.rollout_batch_size));
  problems.require(config.sglang_server_concurrency > 0,
                   "--sglang-server-concurrency: should be at least 1");
  problems.require(config.sglang_max_running_requests > 0,
                   "--sglang-max-running-requests: should be at least 1");
  problems.require(config.sglang_chunked_prefill_size > 0,
                   "--sglang-chunked-prefill-size: should be at least 1");
  check_memory(config, problems);
  problems.require(!config.mask_offpolicy_in_partial_rollout || config.partial_rollout,
                   "--mask-offpolicy-in-partial-rollout: needs --partial-rollout");
  if (config.rollout_max_context_len) {
    if (!config.rollout_max_prompt_len)
      config.rollout_max_prompt_len = *config.rollout_max_context_len - 1;
    problems.require(
        *config.rollout_max_prompt_len < *config.rollout_max_context_len,
        fmt::format("--rollout-max-prompt-len {}: should be below --rollout-max-context-len {}",
                    *config.rollout_max_prompt_len, *config.rollout_max_context_len));
  }
  problems.require(config.is_preference() ||
                       config.is_supervised() == (config.rollout_function_path ==
                                                  "slime.rollout.sft_rollout.generate_rollout"),
                   "--loss-type sft_loss and --rollout-function-path "
                   "slime.rollout.sft_rollout.generate_rollout belong together");
}

void check_rewards(const RunConfig& config, Problems& problems) {
  problems.require(!config.rm_type.ends_with("remote_rm") || !config.rm_url.empty(),
                   "--rm-type remote_rm: needs --rm-url");
  problems.require(config.rm_url.empty() || config.rm_url.starts_with("http://"),
                   fmt::format("--rm-url {}: should begin with http://", config.rm_url));
  const std::string after_scheme = config.rm_url.substr(config.rm_url.find("//") + 1);
  const std::string host = after_scheme.substr(0, after_scheme.find_first_of("/?#", 1));
  problems.require(host.find('@') == std::string::npos,
                   fmt::format("--rm-url {}: user names and passwords in URLs are not supported",
                               config.rm_url));
  problems.require(config.remote_rm_attempts >= 1, "--remote-rm-attempts: should be at least 1");
  problems.require(config.reward_threads >= 1, "--reward-threads: should be at least 1");
  problems.require(config.reward_timeout_seconds > 0,
                   "--reward-timeout-seconds: should be above 0");
  constexpr std::string_view kTeacher = "slime.rollout.on_policy_distillation.";
  for (const auto& [name, path] :
       {std::pair{"--custom-rm-path", config.custom_rm_path},
        std::pair{"--custom-reward-post-process-path", config.custom_reward_post_process_path}}) {
    problems.require(path.empty() || path.starts_with(kTeacher),
                     fmt::format("{} {}: runs user code; plug-ins come with the plug-in host (an "
                                 "issue of its own)",
                                 name, path));
    problems.require(!path.starts_with(kTeacher) || config.opd_type == "sglang",
                     fmt::format("{} {}: needs --use-opd --opd-type sglang", name, path));
  }
  if (config.overlong_buffer_len) {
    const int64_t longest = config.rollout_max_response_len.value_or(0);
    problems.require(*config.overlong_buffer_len >= 0 && *config.overlong_buffer_len <= longest,
                     fmt::format("--overlong-buffer-len {}: should be between 0 and "
                                 "--rollout-max-response-len {}",
                                 *config.overlong_buffer_len, longest));
    problems.require(config.overlong_penalty_factor >= 0,
                     "--overlong-penalty-factor: should not be negative");
  }
}

void check_distillation(const RunConfig& config, Problems& problems) {
  if (!config.use_opd) {
    problems.require(config.opd_teacher_load.empty(), "--opd-teacher-load: needs --use-opd");
    problems.require(config.opd_type.empty(), "--opd-type: needs --use-opd");
    return;
  }
  problems.require(!config.opd_type.empty(), "--use-opd: needs --opd-type megatron or sglang");
  problems.require(!config.trains_on_rows(),
                   "--use-opd: needs responses of the policy; use "
                   "--loss-type policy_loss");
  if (config.opd_type == "megatron") {
    problems.require(
        !config.opd_teacher_load.empty(),
        "--opd-type megatron: needs --opd-teacher-load, the teacher's model directory");
    problems.require(
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
    problems.require(config.rm_type.empty(),
                     "--opd-type sglang: the teacher takes the place of --rm-type");
  }
}

/// Which correction of engine and trainer is meant, and whether it can work.
void check_mismatch(const RunConfig& config, Problems& problems) {
  const std::string& path = config.custom_tis_function_path;
  problems.require(
      path.empty() || config.uses_icepop() || config.uses_mis(),
      fmt::format("--custom-tis-function-path {}: runs user code; built in are "
                  "slime.backends.megatron_utils.loss.icepop_function and "
                  "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
                  path));
  problems.require(path.empty() || config.use_tis || config.get_mismatch_metrics,
                   "--custom-tis-function-path: needs --use-tis or --get-mismatch-metrics");
  problems.require(!config.get_mismatch_metrics || !path.empty(),
                   "--get-mismatch-metrics: needs --custom-tis-function-path, the correction to "
                   "report on");
  problems.require(!config.use_rs || config.uses_mis(),
                   "--use-rs: needs --custom-tis-function-path with the MIS function");
  problems.require(config.tis_clip_low <= config.tis_clip,
                   fmt::format("--tis-clip-low {}: is above --tis-clip {}", config.tis_clip_low,
                               config.tis_clip));
}

void check_critic(const RunConfig& config, Problems& problems) {
  const bool is_ppo = config.has_critic();
  problems.require(is_ppo || config.critic == nullptr,
                   "--megatron-config-path: only --advantage-estimator ppo has a critic");
  problems.require(is_ppo || config.num_critic_only_steps == 0,
                   "--num-critic-only-steps: needs --advantage-estimator ppo");
  problems.require(config.num_critic_only_steps >= 0,
                   "--num-critic-only-steps: should not be negative");
  problems.require(config.value_clip > 0, "--value-clip: should be above 0");
  problems.require(config.lambd >= 0 && config.lambd <= 1, "--lambd: should be in [0, 1]");
  problems.require(config.gamma >= 0 && config.gamma <= 1, "--gamma: should be in [0, 1]");
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

void check_algorithm(RunConfig& config, Problems& problems, std::vector<std::string>& warnings) {
  problems.require(config.kl_coef == 0 || config.kl_loss_coef == 0,
                   fmt::format("--kl-coef {} and --kl-loss-coef {}: only one may be non-zero",
                               config.kl_coef, config.kl_loss_coef));
  problems.require(config.kl_loss_coef == 0 || config.use_kl_loss,
                   "--kl-loss-coef: needs --use-kl-loss");
  problems.require(!config.use_unbiased_kl || config.use_kl_loss,
                   "--use-unbiased-kl: needs --use-kl-loss");
  problems.require(!config.ref_update_interval || config.needs_reference(),
                   "--ref-update-interval: needs a reference (--use-kl-loss or --kl-coef)");
  const bool discounted = config.advantage_estimator.starts_with("reinforce_plus_plus");
  problems.require(!discounted || config.normalize_advantages,
                   fmt::format("--advantage-estimator {}: needs --normalize-advantages",
                               config.advantage_estimator));
  problems.require(!(config.use_rollout_logprobs && config.use_tis),
                   "--use-rollout-logprobs and --use-tis: choose one");
  problems.require(!config.policy_loss_divisor || *config.policy_loss_divisor > 0,
                   "--policy-loss-divisor: should be above 0");
  const std::string& reducer = config.custom_pg_loss_reducer_function_path;
  const bool is_built_in = reducer.ends_with("custom_reducer.get_pg_loss_reducer") ||
                           reducer.ends_with("custom_reducer:get_pg_loss_reducer");
  problems.require(reducer.empty() || is_built_in,
                   fmt::format("--custom-pg-loss-reducer-function-path {}: runs user code; "
                               "--policy-loss-divisor N divides by a constant",
                               reducer));
  problems.require(reducer.empty() || !config.policy_loss_divisor,
                   "--policy-loss-divisor and --custom-pg-loss-reducer-function-path: choose one");
  if (is_built_in && !config.policy_loss_divisor && !config.calculate_per_token_loss)
    config.policy_loss_divisor = 1000;
  if (config.advantage_estimator == "dr_grpo") {
    config.disable_grpo_std_normalization = true;
    if (!config.policy_loss_divisor && config.rollout_max_response_len)
      config.policy_loss_divisor = static_cast<double>(*config.rollout_max_response_len);
  }
  problems.require(!config.policy_loss_divisor || !config.calculate_per_token_loss,
                   "--calculate-per-token-loss: contradicts a constant divisor "
                   "(--policy-loss-divisor, dr_grpo)");
  problems.require(config.advantage_estimator != "rloo" || config.n_samples_per_prompt > 1 ||
                       config.trains_on_rows(),
                   "--advantage-estimator rloo: needs --n-samples-per-prompt of at least 2");
  const bool ignores_kl =
      config.advantage_estimator == "grpo" || config.advantage_estimator == "gspo" ||
      config.advantage_estimator == "cispo" || config.advantage_estimator == "rloo" ||
      config.advantage_estimator == "dr_grpo";
  if (config.kl_coef != 0 && ignores_kl) {
    warnings.push_back(
        fmt::format("--kl-coef {}: the advantages of {} do not contain it; "
                    "--use-kl-loss --kl-loss-coef holds the policy back",
                    config.kl_coef, config.advantage_estimator));
  }
  if (config.advantage_estimator == "cispo" && config.eps_clip < 1) {
    warnings.push_back(
        fmt::format("--eps-clip {}: cispo is meant without a lower bound, --eps-clip "
                    "1 or more",
                    config.eps_clip));
  }
  problems.require(!config.eps_clip_c || *config.eps_clip_c > 1, "--eps-clip-c: should be above 1");
  problems.require(config.eps_clip >= 0, "--eps-clip: should not be negative");
  if (!config.eps_clip_high) config.eps_clip_high = config.eps_clip;
  if (config.n_samples_per_prompt == 1) config.disable_grpo_std_normalization = true;
  if (config.eval_reward_key.empty()) config.eval_reward_key = config.reward_key;
  if (config.ref_load.empty()) config.ref_load = config.hf_checkpoint;
  problems.require(!config.needs_reference() || config.ref_load == config.hf_checkpoint ||
                       std::filesystem::is_directory(config.ref_load),
                   fmt::format("--ref-load {}: no such directory", config.ref_load));
  problems.require(
      config.only_train_params_name_list.empty() || config.freeze_params_name_list.empty(),
      "--only-train-params-name-list and --freeze-params-name-list: choose one");
  problems.require(!config.use_stateless_adam || config.no_save_optim,
                   "--use-stateless-adam: needs --no-save-optim, there is no state to save");
  problems.require(config.lr >= 0, "--lr: should not be negative");
  problems.require(config.min_lr <= config.lr,
                   fmt::format("--min-lr {}: is above --lr {}", config.min_lr, config.lr));
  problems.require(!(config.lr_warmup_fraction && config.lr_warmup_iters > 0),
                   "--lr-warmup-fraction and --lr-warmup-iters: choose one");
  problems.require(config.adam_beta1 >= 0 && config.adam_beta1 < 1,
                   "--adam-beta1: should be in [0, 1)");
  problems.require(config.adam_beta2 >= 0 && config.adam_beta2 < 1,
                   "--adam-beta2: should be in [0, 1)");
  problems.require(config.clip_grad >= 0, "--clip-grad: should not be negative");
}

/// Rules of several data-parallel ranks (spec section 12.3).
void check_ranks(const RunConfig& config, Problems& problems) {
  const int64_t ranks = config.actor_num_gpus_per_node;
  problems.require(ranks >= 1 && ranks <= 64,
                   fmt::format("--actor-num-gpus-per-node {}: should be between 1 and 64", ranks));
  problems.require(
      ranks == 1 || config.device == "cpu",
      fmt::format("--actor-num-gpus-per-node {} --device {}: several ranks train on the "
                  "CPU for now; use 1 with a GPU",
                  ranks, config.device));
  problems.require(config.distributed_timeout_minutes >= 1,
                   "--distributed-timeout-minutes: should be at least 1");
  problems.require(config.worker_timeout_seconds >= 1,
                   "--worker-timeout-seconds: should be at least 1");
  if (ranks <= 1 || config.micro_batch_size < 1 || *config.global_batch_size < 1) return;
  const int64_t samples = *config.global_batch_size * (config.is_preference() ? 2 : 1);
  problems.require(config.is_preference() || samples >= ranks,
                   fmt::format("--actor-num-gpus-per-node {}: --global-batch-size {} is less than "
                               "one sample for each rank",
                               ranks, *config.global_batch_size));
  const bool is_static = !config.use_dynamic_batch_size && !config.is_preference();
  problems.require(
      !is_static || samples % (config.micro_batch_size * ranks) == 0,
      fmt::format(
          "--global-batch-size {}: should be a multiple of --micro-batch-size {} x {} ranks, "
          "or use --use-dynamic-batch-size",
          *config.global_batch_size, config.micro_batch_size, ranks));
}

void check_batches(RunConfig& config, Problems& problems) {
  const int64_t samples = config.samples_per_rollout();
  if (config.num_steps_per_rollout) {
    problems.require(*config.num_steps_per_rollout >= 1,
                     "--num-steps-per-rollout: should be at least 1");
    if (*config.num_steps_per_rollout >= 1) {
      const int64_t derived = samples / *config.num_steps_per_rollout;
      problems.require(
          !config.global_batch_size || *config.global_batch_size == derived,
          fmt::format(
              "--global-batch-size {} contradicts --num-steps-per-rollout {}, which makes it {}",
              config.global_batch_size.value_or(0), *config.num_steps_per_rollout, derived));
      config.global_batch_size = derived;
    }
  }
  if (!config.global_batch_size) config.global_batch_size = samples;
  problems.require(
      *config.global_batch_size >= 1 && *config.global_batch_size <= samples,
      fmt::format("--global-batch-size {}: should be between 1 and --rollout-batch-size x "
                  "--n-samples-per-prompt = {}",
                  *config.global_batch_size, samples));
  problems.require(*config.global_batch_size < 1 || samples % *config.global_batch_size == 0,
                   fmt::format("--global-batch-size {}: {} samples per rollout do not divide by "
                               "it, the rest would never be trained",
                               *config.global_batch_size, samples));
  problems.require(!config.use_dynamic_batch_size || config.max_tokens_per_gpu.value_or(0) > 0,
                   "--use-dynamic-batch-size: needs --max-tokens-per-gpu");
  problems.require(!config.balance_by_flops || config.use_dynamic_batch_size,
                   "--balance-by-flops: needs --use-dynamic-batch-size");
  if (config.balance_by_flops) config.balance_data = true;
  if (config.recompute_activations && config.recompute_granularity.empty())
    config.recompute_granularity = "selective";
  problems.require(config.micro_batch_size >= 1, "--micro-batch-size: should be at least 1");
  for (const auto& [name, size] :
       {std::pair{"--tensor-model-parallel-size", config.tensor_model_parallel_size},
        std::pair{"--pipeline-model-parallel-size", config.pipeline_model_parallel_size},
        std::pair{"--context-parallel-size", config.context_parallel_size},
        std::pair{"--expert-model-parallel-size", config.expert_model_parallel_size},
        std::pair{"--expert-tensor-parallel-size", config.expert_tensor_parallel_size},
        std::pair{"--actor-num-nodes", config.actor_num_nodes}}) {
    problems.require(
        size == 1,
        fmt::format("{} {}: ranks are data-parallel and on one host for now; use 1", name, size));
  }
  check_ranks(config, problems);
}

void check_output(RunConfig& config, Problems& problems) {
  problems.require(config.eval_prompt_data.size() == 1 || config.eval_prompt_data.size() % 2 == 0,
                   "--eval-prompt-data: pairs of name and path");
  if (config.eval_prompt_data.size() == 1)
    config.eval_prompt_data.insert(config.eval_prompt_data.begin(), "aime");
  const bool has_eval_data = !config.eval_prompt_data.empty() || !config.eval_config.empty();
  problems.require(!config.eval_interval || has_eval_data,
                   "--eval-interval: needs --eval-prompt-data or --eval-config");
  if (has_eval_data && config.eval_prompt_data.size() % 2 == 0) {
    try {
      eval_sets_of(config);
    } catch (const ConfigError& error) {
      problems.require(false, error.what());
    }
  }
  problems.require(
      config.load_debug_rollout_data_subsample > 0 && config.load_debug_rollout_data_subsample <= 1,
      "--load-debug-rollout-data-subsample: should be in (0, 1]");
  problems.require(!config.wandb_always_use_train_step || config.use_wandb,
                   "--wandb-always-use-train-step: needs --use-wandb");
  problems.require(!config.eval_interval || *config.eval_interval >= 1,
                   "--eval-interval: should be at least 1");
  problems.require(!config.save_interval || *config.save_interval >= 1,
                   "--save-interval: should be at least 1");
  problems.require(config.n_samples_per_eval_prompt >= 1,
                   "--n-samples-per-eval-prompt: should be at least 1");
  problems.require(!config.eval_temperature || *config.eval_temperature >= 0,
                   "--eval-temperature: should not be negative");
  problems.require(!config.profile || config.profile_step_start < config.profile_step_end,
                   fmt::format("--profile-step-start {} is not below --profile-step-end {}",
                               config.profile_step_start, config.profile_step_end));
  problems.require(!(config.debug_rollout_only && config.debug_train_only),
                   "--debug-rollout-only and --debug-train-only: choose one");
  if (!config.dump_details.empty()) {
    problems.require(config.save_debug_rollout_data.empty(),
                     "--dump-details and --save-debug-rollout-data: choose one");
    config.save_debug_rollout_data = config.dump_details + "/rollout_data/{rollout_id}.jsonl";
  }
  for (const auto& [name, path] :
       {std::pair{"--save-debug-rollout-data", config.save_debug_rollout_data},
        std::pair{"--load-debug-rollout-data", config.load_debug_rollout_data}}) {
    problems.require(path.empty() || path.find("{rollout_id}") != std::string::npos,
                     fmt::format("{} {}: should contain {{rollout_id}}", name, path));
  }
  problems.require(config.load_debug_rollout_data.empty() ||
                       config.load_debug_rollout_data != config.save_debug_rollout_data,
                   "--load-debug-rollout-data and --save-debug-rollout-data: the same path");
  if (!config.load_debug_rollout_data.empty()) config.debug_train_only = true;
}

}  // namespace

std::string EngineFlags::kv_cache_dtype() const {
  return sglang_kv_cache_dtype == "bf16" ? "bfloat16" : sglang_kv_cache_dtype;
}

int64_t RunConfig::samples_per_step() const {
  return global_batch_size.value_or(samples_per_rollout());
}

void complete_and_validate(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  Problems problems(flags.problems);
  const bool gives_n =
      std::ranges::find(flags.given, "--n-samples-per-prompt") != flags.given.end();
  if (config.is_preference() && gives_n && config.n_samples_per_prompt != 2) {
    flags.warnings.push_back(
        fmt::format("--n-samples-per-prompt {}: a preference has two responses; 2 is used",
                    config.n_samples_per_prompt));
  }
  choose_dtype(config, problems);
  check_data(config, problems);
  check_built_ins(config, problems);
  check_rollout(config, problems);
  check_rewards(config, problems);
  check_algorithm(config, problems, flags.warnings);
  check_distillation(config, problems);
  check_mismatch(config, problems);
  check_critic(config, problems);
  check_preferences(config, problems);
  check_batches(config, problems);
  check_output(config, problems);
  check_evaluation_runs(flags);
  problems.require(
      config.device != "cpu" || config.sglang_kv_cache_dtype != "fp8_e4m3",
      "--sglang-kv-cache-dtype fp8_e4m3: needs --device cuda; the CPU's attention reads "
      "float32 and bfloat16");
  if (config.device == "cpu" && config.sglang_mem_fraction_static) {
    flags.warnings.push_back(
        fmt::format("--sglang-mem-fraction-static {}: is about a GPU's memory; on the CPU "
                    "--kv-cache-gb counts",
                    *config.sglang_mem_fraction_static));
  }
  problems.throw_if_any(flags.unknown_notes);
}

}  // namespace slime::config
