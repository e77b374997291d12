#include "loop/run_config.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "loop/parse_flags.h"

namespace slime::loop {
namespace {

class Problems {
 public:
  void require(bool holds, std::string message) {
    if (!holds) messages_.push_back(std::move(message));
  }
  void throw_if_any() const {
    if (!messages_.empty()) throw ConfigError(messages_);
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
  problems.require(has_data, "--prompt-data: at least one JSON-lines file is needed");
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

void check_rollout(RunConfig& config, Problems& problems) {
  problems.require(
      config.rollout_temperature > 0,
      fmt::format("--rollout-temperature {}: should be above 0; the trainer divides by it",
                  config.rollout_temperature));
  problems.require(config.rollout_top_p > 0 && config.rollout_top_p <= 1,
                   fmt::format("--rollout-top-p {}: should be in (0, 1]", config.rollout_top_p));
  problems.require(config.rollout_top_p == 1 || config.is_supervised(),
                   "--rollout-top-p below 1: the trainer cannot replay the nucleus yet; use 1 or "
                   "--eval-top-p for evaluation");
  problems.require(
      config.rollout_top_k == -1 || config.rollout_top_k >= 1,
      fmt::format("--rollout-top-k {}: should be -1 (all) or at least 1", config.rollout_top_k));
  const bool generates = !config.is_supervised() && config.load_debug_rollout_data.empty();
  problems.require(!generates || config.rollout_max_response_len.value_or(0) > 0,
                   "--rollout-max-response-len: should be at least 1");
  problems.require(
      !generates || !config.rm_type.empty() || config.debug_rollout_only,
      "--rm-type: a reward is needed (math, dapo, deepscaler, f1, gpqa, random, boxed_...)");
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
  problems.require(config.kv_cache_gb > 0, "--kv-cache-gb: should be above 0");
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
  problems.require(config.is_supervised() == (config.rollout_function_path ==
                                              "slime.rollout.sft_rollout.generate_rollout"),
                   "--loss-type sft_loss and --rollout-function-path "
                   "slime.rollout.sft_rollout.generate_rollout belong together");
}

void check_algorithm(RunConfig& config, Problems& problems) {
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
  problems.require(!config.eps_clip_c || *config.eps_clip_c > 1, "--eps-clip-c: should be above 1");
  problems.require(config.eps_clip >= 0, "--eps-clip: should not be negative");
  if (!config.eps_clip_high) config.eps_clip_high = config.eps_clip;
  if (config.n_samples_per_prompt == 1) config.disable_grpo_std_normalization = true;
  if (config.eval_reward_key.empty()) config.eval_reward_key = config.reward_key;
  if (config.ref_load.empty()) config.ref_load = config.hf_checkpoint;
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
  problems.require(config.micro_batch_size >= 1, "--micro-batch-size: should be at least 1");
  for (const auto& [name, size] :
       {std::pair{"--tensor-model-parallel-size", config.tensor_model_parallel_size},
        std::pair{"--pipeline-model-parallel-size", config.pipeline_model_parallel_size},
        std::pair{"--context-parallel-size", config.context_parallel_size},
        std::pair{"--expert-model-parallel-size", config.expert_model_parallel_size},
        std::pair{"--expert-tensor-parallel-size", config.expert_tensor_parallel_size},
        std::pair{"--actor-num-nodes", config.actor_num_nodes},
        std::pair{"--actor-num-gpus-per-node", config.actor_num_gpus_per_node}}) {
    problems.require(size == 1,
                     fmt::format("{} {}: a run is one process for now; use 1", name, size));
  }
}

void check_output(RunConfig& config, Problems& problems) {
  problems.require(config.eval_prompt_data.size() == 1 || config.eval_prompt_data.size() % 2 == 0,
                   "--eval-prompt-data: pairs of name and path");
  if (config.eval_prompt_data.size() == 1)
    config.eval_prompt_data.insert(config.eval_prompt_data.begin(), "aime");
  problems.require(!config.eval_interval || !config.eval_prompt_data.empty(),
                   "--eval-interval: needs --eval-prompt-data");
  problems.require(!config.eval_interval || *config.eval_interval >= 1,
                   "--eval-interval: should be at least 1");
  problems.require(!config.save_interval || *config.save_interval >= 1,
                   "--save-interval: should be at least 1");
  problems.require(config.n_samples_per_eval_prompt >= 1,
                   "--n-samples-per-eval-prompt: should be at least 1");
  problems.require(!config.eval_temperature || *config.eval_temperature >= 0,
                   "--eval-temperature: should not be negative");
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

int64_t RunConfig::samples_per_step() const {
  return global_batch_size.value_or(samples_per_rollout());
}

void complete_and_validate(RunConfig& config) {
  Problems problems;
  choose_dtype(config, problems);
  check_data(config, problems);
  check_rollout(config, problems);
  check_algorithm(config, problems);
  check_batches(config, problems);
  check_output(config, problems);
  problems.throw_if_any();
}

}  // namespace slime::loop
