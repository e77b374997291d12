#include "loop/flag_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace slime::loop {
namespace {

using C = RunConfig;
using enum FlagGroup;
constexpr FlagStatus kWorks = FlagStatus::kWorks;
constexpr FlagStatus kAccepted = FlagStatus::kAccepted;
constexpr FlagStatus kRefused = FlagStatus::kRefused;
constexpr std::monostate kNone{};

constexpr std::string_view kOnePlugin =
    "runs user code; plug-ins come with the plug-in host (an issue of its own)";
constexpr std::string_view kAlways = "always so here";
constexpr std::string_view kFromConfig = "the architecture is read from config.json";
constexpr std::string_view kGpuOnly = "chooses a GPU path; this run is on the CPU";
constexpr std::string_view kOneWeights =
    "trainer and engine share one set of weights, nothing is moved or offloaded";

const std::vector<Flag>& rows() {
  static const std::vector<Flag> kRows = {
      // --- model and checkpoints ---
      {"--hf-checkpoint", kModel, kWorks, &C::hf_checkpoint,
       "model directory: config.json, safetensors, tokenizer"},
      {"--ref-load", kModel, kWorks, &C::ref_load,
       "model directory of the KL reference; default: --hf-checkpoint"},
      {"--load", kModel, kWorks, &C::load,
       "checkpoint folder to resume from; default: --save, if it holds one"},
      {"--save", kModel, kWorks, &C::save, "checkpoint folder; default: --run-dir"},
      {"--save-interval", kModel, kWorks, &C::save_interval,
       "save every N rollouts; the last one is always saved"},
      {"--save-hf", kModel, kAccepted, kNone, "every checkpoint is a Hugging Face directory; see RUN_DIR/latest", {}, 1},
      {"--keep-checkpoints", kModel, kWorks, &C::keep_checkpoints,
       "delete all but the newest N checkpoints; 0 keeps all"},
      {"--no-save-optim", kModel, kWorks, &C::no_save_optim,
       "leave the optimizer state out of checkpoints (no exact resume)"},
      {"--no-load-optim", kModel, kWorks, &C::no_load_optim, "start with fresh optimizer moments"},
      {"--start-rollout-id", kModel, kWorks, &C::start_rollout_id,
       "first rollout; normally restored from the checkpoint"},
      {"--run-dir", kModel, kWorks, &C::run_dir,
       "folder for metrics, rollouts, report and checkpoints"},
      {"--dtype",
       kModel,
       kWorks,
       &C::dtype,
       "precision of the weights; the master copy is float32",
       {"bfloat16", "float16", "float32", "float64"}},
      {"--bf16", kModel, kWorks, &C::bf16, "same as --dtype bfloat16"},
      {"--fp16", kModel, kWorks, &C::fp16, "same as --dtype float16"},
      {"--fp32", kModel, kWorks, &C::fp32, "same as --dtype float32"},
      {"--seed", kModel, kWorks, &C::seed, "seed of sampling and of fresh weights"},
      {"--num-threads", kModel, kWorks, &C::num_threads, "CPU threads; 0: all cores"},
      {"--async-save",
       kModel,
       kAccepted,
       kNone,
       "checkpoints are written before the next step starts",
       {},
       0},
      {"--ckpt-format",
       kModel,
       kAccepted,
       kNone,
       "there is one form, Hugging Face safetensors",
       {},
       1},
      {"--train-backend", kModel, kAccepted, kNone, "there is one trainer", {}, 1},
      {"--model-name", kModel, kAccepted, kNone, "no conversion step exists", {}, 1},
      {"--trust-remote-code",
       kModel,
       kAccepted,
       kNone,
       "code from a model directory is never run",
       {},
       0},
      {"--transformer-impl", kModel, kAccepted, kNone, "there is one implementation", {}, 1},
      {"--custom-model-provider-path", kModel, kRefused, kNone, kOnePlugin, {}, 1},

      // --- data ---
      {"--prompt-data", kData, kWorks, &C::prompt_data,
       "JSON-lines files of prompts; each may end in @[a:b]"},
      {"--input-key", kData, kWorks, &C::input_key,
       "field with the prompt: a string or a list of messages"},
      {"--label-key", kData, kWorks, &C::label_key, "field with the right answer"},
      {"--metadata-key", kData, kWorks, &C::metadata_key,
       "field with an object that travels with the sample"},
      {"--tool-key", kData, kWorks, &C::tool_key, "field with the tools of the chat template"},
      {"--apply-chat-template", kData, kWorks, &C::apply_chat_template,
       "render messages with the model's chat template"},
      {"--apply-chat-template-kwargs", kData, kWorks, &C::apply_chat_template_kwargs,
       "JSON object of template variables"},
      {"--rollout-shuffle", kData, kWorks, &C::rollout_shuffle,
       "a new order each epoch, from --rollout-seed"},
      {"--rollout-seed", kData, kWorks, &C::rollout_seed, "seed of the order of prompts"},
      {"--num-rollout", kData, kWorks, &C::num_rollout,
       "number of rollout steps; wins over --num-epoch"},
      {"--num-epoch", kData, kWorks, &C::num_epoch, "number of passes over the data"},
      {"--rollout-batch-size", kData, kWorks, &C::rollout_batch_size, "prompts per rollout step"},
      {"--n-samples-per-prompt", kData, kWorks, &C::n_samples_per_prompt, "responses per prompt"},
      {"--loss-mask-type",
       kData,
       kWorks,
       &C::loss_mask_type,
       "how chat data is masked in supervised training",
       {"qwen", "qwen3", "qwen3_5", "distill_qwen"}},
      {"--rollout-max-prompt-len", kData, kWorks, &C::rollout_max_prompt_len,
       "drop longer prompts when loading"},
      {"--rollout-max-context-len", kData, kWorks, &C::rollout_max_context_len,
       "prompt and response together"},
      {"--data-source-path", kData, kRefused, kNone, kOnePlugin, {}, 1},
      {"--buffer-filter-path", kData, kRefused, kNone, kOnePlugin, {}, 1},
      {"--multimodal-keys", kData, kRefused, kNone, "text models only", {}, 1},
      {"--rollout-data-transport", kData, kAccepted, kNone, "loop and trainer share memory", {}, 1},

      // --- rollout ---
      {"--rollout-function-path",
       kRollout,
       kWorks,
       &C::rollout_function_path,
       "built in: generation, and supervised rows without generation",
       {"slime.rollout.sglang_rollout.generate_rollout",
        "slime.rollout.sft_rollout.generate_rollout"}},
      {"--rollout-temperature", kRollout, kWorks, &C::rollout_temperature,
       "above 0; the trainer divides its logits by it too"},
      {"--rollout-top-p", kRollout, kWorks, &C::rollout_top_p, "nucleus, in (0, 1]"},
      {"--rollout-top-k", kRollout, kWorks, &C::rollout_top_k, "-1: all"},
      {"--rollout-max-response-len", kRollout, kWorks, &C::rollout_max_response_len,
       "new tokens per response"},
      {"--rollout-skip-special-tokens", kRollout, kWorks, &C::rollout_skip_special_tokens,
       "leave them out of response texts"},
      {"--rollout-stop", kRollout, kWorks, &C::rollout_stop, "strings that end a response"},
      {"--rollout-stop-token-ids", kRollout, kWorks, &C::rollout_stop_token_ids,
       "ids that end a response"},
      {"--over-sampling-batch-size", kRollout, kWorks, &C::over_sampling_batch_size,
       "prompts started per refill"},
      {"--dynamic-sampling-filter-path", kRollout, kWorks, &C::dynamic_sampling_filter_path,
       "built in: slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std and "
       "its fallback form"},
      {"--partial-rollout", kRollout, kWorks, &C::partial_rollout,
       "aborted groups go back to the buffer and continue later"},
      {"--mask-offpolicy-in-partial-rollout", kRollout, kWorks,
       &C::mask_offpolicy_in_partial_rollout, "tokens of older weights are not trained"},
      {"--sglang-server-concurrency", kRollout, kWorks, &C::sglang_server_concurrency,
       "samples in flight at once"},
      {"--sglang-max-running-requests", kRollout, kWorks, &C::sglang_max_running_requests,
       "requests in one engine batch"},
      {"--sglang-chunked-prefill-size", kRollout, kWorks, &C::sglang_chunked_prefill_size,
       "prompt tokens in one engine step"},
      {"--sglang-context-length", kRollout, kWorks, &C::sglang_context_length,
       "default: the model's"},
      {"--sglang-disable-radix-cache", kRollout, kWorks, &C::sglang_disable_radix_cache,
       "do not share prompt prefixes"},
      {"--kv-cache-gb", kRollout, kWorks, &C::kv_cache_gb, "memory of the KV cache"},
      {"--custom-generate-function-path", kRollout, kRefused, kNone, kOnePlugin, {}, 1},
      {"--rollout-sample-hook-path", kRollout, kRefused, kNone, kOnePlugin, {}, 1},
      {"--rollout-sample-filter-path", kRollout, kRefused, kNone, kOnePlugin, {}, 1},
      {"--rollout-all-samples-process-path", kRollout, kRefused, kNone, kOnePlugin, {}, 1},
      {"--rollout-external-engine-addrs",
       kRollout,
       kRefused,
       kNone,
       "the engine runs in this process",
       {},
       2},
      {"--update-weights-interval",
       kRollout,
       kAccepted,
       kNone,
       "the synchronous loop hands over after every rollout",
       {},
       1},
      {"--update-weight-buffer-size", kRollout, kAccepted, kNone, kOneWeights, {}, 1},
      {"--update-weight-mode", kRollout, kAccepted, kNone, kOneWeights, {}, 1},
      {"--update-weight-transport", kRollout, kAccepted, kNone, kOneWeights, {}, 1},
      {"--keep-old-actor", kRollout, kRefused, kNone, "only for asynchronous training", {}, 0},
      {"--use-fault-tolerance",
       kRollout,
       kAccepted,
       kNone,
       "there is no second process to lose",
       {},
       0},
      {"--rollout-health-check-interval",
       kRollout,
       kAccepted,
       kNone,
       "there is no second process to check",
       {},
       1},
      {"--rollout-health-check-timeout",
       kRollout,
       kAccepted,
       kNone,
       "there is no second process to check",
       {},
       1},
      {"--rollout-health-check-first-wait",
       kRollout,
       kAccepted,
       kNone,
       "there is no second process to check",
       {},
       1},
      {"--sglang-mem-fraction-static",
       kRollout,
       kAccepted,
       kNone,
       "use --kv-cache-gb on the CPU",
       {},
       1},
      {"--sglang-cuda-graph-bs", kRollout, kAccepted, kNone, kGpuOnly, {}, 2},
      {"--sglang-cuda-graph-max-bs", kRollout, kAccepted, kNone, kGpuOnly, {}, 1},
      {"--sglang-attention-backend", kRollout, kAccepted, kNone, kGpuOnly, {}, 1},
      {"--sglang-disable-overlap-schedule", kRollout, kAccepted, kNone, kGpuOnly, {}, 0},
      {"--sglang-log-level", kRollout, kAccepted, kNone, "there is one log", {}, 1},
      {"--sglang-watchdog-timeout",
       kRollout,
       kAccepted,
       kNone,
       "there is no second process to watch",
       {},
       1},
      {"--sglang-page-size", kRollout, kAccepted, kNone, "the cache chooses its page size", {}, 1},

      // --- reward ---
      {"--rm-type", kReward, kWorks, &C::rm_type,
       "math, dapo, deepscaler, f1, gpqa, random, each also as boxed_...; a row's metadata.rm_type "
       "wins"},
      {"--reward-key", kReward, kWorks, &C::reward_key, "field of a reward record that trains"},
      {"--eval-reward-key", kReward, kWorks, &C::eval_reward_key,
       "field of a reward record in evaluation"},
      {"--reward-timeout-seconds", kReward, kWorks, &C::reward_timeout_seconds,
       "a slower reward is a failure, not a 0"},
      {"--rm-url",
       kReward,
       kRefused,
       kNone,
       "remote judges are not here yet; use a built-in --rm-type",
       {},
       1},
      {"--custom-rm-path", kReward, kRefused, kNone, kOnePlugin, {}, 1},
      {"--group-rm", kReward, kRefused, kNone, kOnePlugin, {}, 0},
      {"--custom-reward-post-process-path", kReward, kRefused, kNone, kOnePlugin, {}, 1},
      {"--custom-convert-samples-to-train-data-path", kReward, kRefused, kNone, kOnePlugin, {}, 1},

      // --- algorithm ---
      {"--loss-type",
       kAlgorithm,
       kWorks,
       &C::loss_type,
       "what is minimised",
       {"policy_loss", "sft_loss"}},
      {"--advantage-estimator",
       kAlgorithm,
       kWorks,
       &C::advantage_estimator,
       "from scores to advantages",
       {"grpo", "gspo", "cispo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"}},
      {"--disable-compute-advantages-and-returns", kAlgorithm, kAccepted, kNone, "follows from --loss-type", {}, 0},
      {"--eps-clip", kAlgorithm, kWorks, &C::eps_clip, "lower clip of the ratio"},
      {"--eps-clip-high", kAlgorithm, kWorks, &C::eps_clip_high, "upper clip; default: --eps-clip"},
      {"--eps-clip-c", kAlgorithm, kWorks, &C::eps_clip_c, "dual clip, above 1"},
      {"--kl-coef", kAlgorithm, kWorks, &C::kl_coef, "KL penalty inside the advantage"},
      {"--use-kl-loss", kAlgorithm, kWorks, &C::use_kl_loss, "add a KL term to the loss"},
      {"--kl-loss-coef", kAlgorithm, kWorks, &C::kl_loss_coef, "its weight"},
      {"--kl-loss-type",
       kAlgorithm,
       kWorks,
       &C::kl_loss_type,
       "the estimator",
       {"k1", "k2", "k3", "low_var_kl"}},
      {"--use-unbiased-kl", kAlgorithm, kWorks, &C::use_unbiased_kl,
       "multiply the estimator by the ratio"},
      {"--ref-update-interval", kAlgorithm, kWorks, &C::ref_update_interval,
       "the reference becomes the actor every N rollouts"},
      {"--entropy-coef", kAlgorithm, kWorks, &C::entropy_coef, "entropy bonus"},
      {"--gamma", kAlgorithm, kWorks, &C::gamma, "discount"},
      {"--lambd", kAlgorithm, kAccepted, kNone, "of GAE, which only ppo uses; ppo is not here yet", {}, 1},
      {"--normalize-advantages", kAlgorithm, kWorks, &C::normalize_advantages,
       "whiten over the rollout step"},
      {"--disable-grpo-std-normalization", kAlgorithm, kWorks, &C::disable_grpo_std_normalization,
       "subtract the group's mean only (Dr. GRPO)"},
      {"--disable-rewards-normalization", kAlgorithm, kWorks, &C::disable_rewards_normalization,
       "rewards as they are"},
      {"--calculate-per-token-loss", kAlgorithm, kWorks, &C::calculate_per_token_loss,
       "mean over tokens, not over responses"},
      {"--use-rollout-logprobs", kAlgorithm, kWorks, &C::use_rollout_logprobs,
       "the engine's log-probs are the old policy's"},
      {"--use-tis", kAlgorithm, kWorks, &C::use_tis,
       "truncated importance sampling between trainer and engine"},
      {"--tis-clip", kAlgorithm, kWorks, &C::tis_clip, "its upper bound"},
      {"--tis-clip-low", kAlgorithm, kWorks, &C::tis_clip_low, "its lower bound"},
      {"--use-opsm", kAlgorithm, kWorks, &C::use_opsm, "drop bad samples that left the policy"},
      {"--opsm-delta", kAlgorithm, kWorks, &C::opsm_delta, "how far is left"},
      {"--custom-loss-function-path", kAlgorithm, kRefused, kNone, kOnePlugin, {}, 1},
      {"--custom-advantage-function-path", kAlgorithm, kRefused, kNone, kOnePlugin, {}, 1},
      {"--custom-tis-function-path", kAlgorithm, kRefused, kNone, kOnePlugin, {}, 1},
      {"--custom-pg-loss-reducer-function-path", kAlgorithm, kRefused, kNone, kOnePlugin, {}, 1},
      {"--use-opd", kAlgorithm, kRefused, kNone, "on-policy distillation is not here yet", {}, 0},
      {"--get-mismatch-metrics", kAlgorithm, kRefused, kNone, kOnePlugin, {}, 0},

      // --- optimizer ---
      {"--optimizer",
       kOptimizer,
       kWorks,
       &C::optimizer,
       "AdamW with decoupled weight decay",
       {"adam"}},
      {"--lr", kOptimizer, kWorks, &C::lr, "peak learning rate"},
      {"--min-lr", kOptimizer, kWorks, &C::min_lr, "where decay ends"},
      {"--lr-decay-style",
       kOptimizer,
       kWorks,
       &C::lr_decay_style,
       "shape of the schedule",
       {"constant", "linear", "cosine", "inverse-square-root"}},
      {"--lr-decay-iters", kOptimizer, kWorks, &C::lr_decay_iters,
       "steps of decay; default: all of the run"},
      {"--lr-warmup-iters", kOptimizer, kWorks, &C::lr_warmup_iters, "steps of linear warm-up"},
      {"--lr-warmup-fraction", kOptimizer, kWorks, &C::lr_warmup_fraction,
       "warm-up as a fraction of the decay steps"},
      {"--lr-warmup-init", kOptimizer, kWorks, &C::lr_warmup_init,
       "learning rate at step 0 of the warm-up"},
      {"--weight-decay", kOptimizer, kWorks, &C::weight_decay, "of matrices; vectors do not decay"},
      {"--adam-beta1", kOptimizer, kWorks, &C::adam_beta1, "first moment"},
      {"--adam-beta2", kOptimizer, kWorks, &C::adam_beta2, "second moment"},
      {"--adam-eps", kOptimizer, kWorks, &C::adam_eps, "added after the square root"},
      {"--clip-grad", kOptimizer, kWorks, &C::clip_grad,
       "limit of the global gradient norm; 0: none"},
      {"--no-check-for-nan-in-loss-and-grad", kOptimizer, kAccepted, kNone,
       "a step with a bad gradient is always skipped, and a few in a row end the run", {}, 0},
      {"--use-distributed-optimizer", kOptimizer, kAccepted, kNone, kAlways, {}, 0},
      {"--optimizer-cpu-offload",
       kOptimizer,
       kAccepted,
       kNone,
       "the state is in host memory already",
       {},
       0},
      {"--overlap-cpu-optimizer-d2h-h2d",
       kOptimizer,
       kAccepted,
       kNone,
       "the state is in host memory already",
       {},
       0},
      {"--use-precision-aware-optimizer",
       kOptimizer,
       kAccepted,
       kNone,
       "moments are float32",
       {},
       0},
      {"--accumulate-allreduce-grads-in-fp32", kOptimizer, kAccepted, kNone, kAlways, {}, 0},
      {"--no-gradient-accumulation-fusion",
       kOptimizer,
       kAccepted,
       kNone,
       "gradients always add into one buffer",
       {},
       0},

      // --- batches ---
      {"--global-batch-size", kBatch, kWorks, &C::global_batch_size,
       "responses per optimizer step"},
      {"--num-steps-per-rollout", kBatch, kWorks, &C::num_steps_per_rollout,
       "optimizer steps per rollout step"},
      {"--micro-batch-size", kBatch, kWorks, &C::micro_batch_size,
       "samples per forward, without dynamic batches"},
      {"--use-dynamic-batch-size", kBatch, kWorks, &C::use_dynamic_batch_size,
       "pack samples by tokens"},
      {"--max-tokens-per-gpu", kBatch, kWorks, &C::max_tokens_per_gpu, "tokens per forward"},
      {"--balance-data", kBatch, kWorks, &C::balance_data, "balance ranks by work"},
      {"--balance-by-flops", kBatch, kWorks, &C::balance_by_flops, "balance micro-batches by work"},
      {"--log-probs-chunk-size", kBatch, kAccepted, kNone, "log-probs are always computed in chunks", {}, 1},
      {"--recompute-granularity",
       kBatch,
       kWorks,
       &C::recompute_granularity,
       "compute activations again in backward",
       {"full", "selective"}},
      {"--recompute-method", kBatch, kAccepted, kNone, "layers are recomputed one by one", {}, 1},
      {"--recompute-num-layers",
       kBatch,
       kAccepted,
       kNone,
       "layers are recomputed one by one",
       {},
       1},
      {"--recompute-loss-function", kBatch, kAccepted, kNone, "logits are never kept whole", {}, 0},
      {"--no-prefix-sharing", kBatch, kWorks, &C::no_prefix_sharing,
       "train every sample with its own copy of the prompt; same numbers, slower"},
      {"--data-pad-size-multiplier", kBatch, kAccepted, kNone, "nothing is padded", {}, 1},

      // --- evaluation ---
      {"--eval-prompt-data", kEval, kWorks, &C::eval_prompt_data, "pairs of name and path"},
      {"--eval-interval", kEval, kWorks, &C::eval_interval, "evaluate every N rollouts"},
      {"--skip-eval-before-train", kEval, kWorks, &C::skip_eval_before_train,
       "no evaluation before the first rollout"},
      {"--eval-input-key", kEval, kWorks, &C::eval_input_key, "default: --input-key"},
      {"--eval-label-key", kEval, kWorks, &C::eval_label_key, "default: --label-key"},
      {"--eval-tool-key", kEval, kWorks, &C::eval_tool_key, "default: --tool-key"},
      {"--n-samples-per-eval-prompt", kEval, kWorks, &C::n_samples_per_eval_prompt,
       "responses per evaluation prompt"},
      {"--eval-temperature", kEval, kWorks, &C::eval_temperature,
       "0 is greedy; default: --rollout-temperature"},
      {"--eval-top-p", kEval, kWorks, &C::eval_top_p, "default: --rollout-top-p"},
      {"--eval-top-k", kEval, kWorks, &C::eval_top_k, "default: --rollout-top-k"},
      {"--eval-max-response-len", kEval, kWorks, &C::eval_max_response_len,
       "default: --rollout-max-response-len"},
      {"--eval-max-prompt-len", kEval, kWorks, &C::eval_max_prompt_len,
       "drop longer evaluation prompts"},
      {"--eval-min-new-tokens", kEval, kWorks, &C::eval_min_new_tokens, "no end token before"},
      {"--log-passrate", kEval, kWorks, &C::log_passrate, "pass@1, 2, 4, ... of the groups"},
      {"--eval-config",
       kEval,
       kRefused,
       kNone,
       "use --eval-prompt-data with the --eval-... flags",
       {},
       1},
      {"--eval-function-path", kEval, kRefused, kNone, kOnePlugin, {}, 1},

      // --- what is written ---
      {"--use-tensorboard", kOutput, kAccepted, kNone, "event files are always written, to RUN_DIR/tensorboard", {}, 0},
      {"--tb-project-name", kOutput, kAccepted, kNone, "event files are always in RUN_DIR/tensorboard", {}, 1},
      {"--tb-experiment-name", kOutput, kAccepted, kNone, "event files are always in RUN_DIR/tensorboard", {}, 1},
      {"--save-debug-rollout-data", kOutput, kWorks, &C::save_debug_rollout_data,
       "path with {rollout_id}: the samples of each rollout as JSON lines"},
      {"--load-debug-rollout-data", kOutput, kWorks, &C::load_debug_rollout_data,
       "train on such files instead of generating"},
      {"--dump-details", kOutput, kWorks, &C::dump_details, "folder: rollout dumps of every step"},
      {"--debug-rollout-only", kOutput, kWorks, &C::debug_rollout_only,
       "generate and score, never train"},
      {"--debug-train-only", kOutput, kWorks, &C::debug_train_only, "train without an engine"},
      {"--no-save-rollouts", kOutput, kWorks, &C::no_save_rollouts,
       "do not keep rollouts for the report"},
      {"--use-wandb",
       kOutput,
       kRefused,
       kNone,
       "metrics are in metrics.jsonl and TensorBoard files",
       {},
       0},
      {"--wandb-project", kOutput, kAccepted, kNone, "has a meaning with --use-wandb only", {}, 1},
      {"--wandb-group", kOutput, kAccepted, kNone, "has a meaning with --use-wandb only", {}, 1},
      {"--wandb-key", kOutput, kAccepted, kNone, "has a meaning with --use-wandb only", {}, 1},
      {"--disable-wandb-random-suffix",
       kOutput,
       kAccepted,
       kNone,
       "has a meaning with --use-wandb only",
       {},
       0},

      // --- model shape ---
      {"--num-layers", kShape, kWorks, &C::num_layers, "checked against config.json"},
      {"--hidden-size", kShape, kWorks, &C::hidden_size, "checked against config.json"},
      {"--ffn-hidden-size", kShape, kWorks, &C::ffn_hidden_size, "checked against config.json"},
      {"--num-attention-heads", kShape, kWorks, &C::num_attention_heads,
       "checked against config.json"},
      {"--num-query-groups", kShape, kWorks, &C::num_query_groups, "checked against config.json"},
      {"--kv-channels", kShape, kWorks, &C::kv_channels, "checked against config.json"},
      {"--vocab-size", kShape, kWorks, &C::vocab_size, "checked against config.json"},
      {"--rotary-base", kShape, kWorks, &C::rotary_base, "checked against config.json"},
      {"--norm-epsilon", kShape, kWorks, &C::norm_epsilon, "checked against config.json"},
      {"--group-query-attention", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--swiglu", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--normalization", kShape, kAccepted, kNone, kFromConfig, {}, 1},
      {"--disable-bias-linear", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--add-qkv-bias", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--qk-layernorm", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--use-rotary-position-embeddings", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--position-embedding-type", kShape, kAccepted, kNone, kFromConfig, {}, 1},
      {"--rotary-percent", kShape, kAccepted, kNone, kFromConfig, {}, 1},
      {"--use-rope-scaling", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--untie-embeddings-and-output-weights", kShape, kAccepted, kNone, kFromConfig, {}, 0},
      {"--max-position-embeddings", kShape, kAccepted, kNone, kFromConfig, {}, 1},
      {"--make-vocab-size-divisible-by",
       kShape,
       kAccepted,
       kNone,
       "the vocabulary is not padded",
       {},
       1},
      {"--seq-length", kShape, kAccepted, kNone, "lengths vary; nothing is padded", {}, 1},
      {"--attention-dropout", kShape, kAccepted, kNone, "there is no dropout", {}, 1},
      {"--hidden-dropout", kShape, kAccepted, kNone, "there is no dropout", {}, 1},
      {"--attention-softmax-in-fp32", kShape, kAccepted, kNone, kAlways, {}, 0},
      {"--attention-backend", kShape, kAccepted, kNone, kGpuOnly, {}, 1},
      {"--no-rope-fusion", kShape, kAccepted, kNone, kGpuOnly, {}, 0},
      {"--no-masked-softmax-fusion", kShape, kAccepted, kNone, kGpuOnly, {}, 0},

      // --- parallel sizes ---
      {"--tensor-model-parallel-size", kParallel, kWorks, &C::tensor_model_parallel_size,
       "1 in a single process"},
      {"--pipeline-model-parallel-size", kParallel, kWorks, &C::pipeline_model_parallel_size,
       "1 in a single process"},
      {"--context-parallel-size", kParallel, kWorks, &C::context_parallel_size,
       "1 in a single process"},
      {"--expert-model-parallel-size", kParallel, kWorks, &C::expert_model_parallel_size,
       "1 in a single process"},
      {"--expert-tensor-parallel-size", kParallel, kWorks, &C::expert_tensor_parallel_size,
       "1 in a single process"},
      {"--actor-num-nodes", kParallel, kWorks, &C::actor_num_nodes, "1 in a single process"},
      {"--actor-num-gpus-per-node", kParallel, kWorks, &C::actor_num_gpus_per_node,
       "1 in a single process"},
      {"--sequence-parallel",
       kParallel,
       kAccepted,
       kNone,
       "one process holds all of a sequence",
       {},
       0},
      {"--colocate", kParallel, kAccepted, kNone, kAlways, {}, 0},
      {"--offload", kParallel, kAccepted, kNone, kOneWeights, {}, 0},
      {"--offload-train", kParallel, kAccepted, kNone, kOneWeights, {}, 0},
      {"--offload-rollout", kParallel, kAccepted, kNone, kOneWeights, {}, 0},
      {"--no-offload-train", kParallel, kAccepted, kNone, kOneWeights, {}, 0},
      {"--no-offload-rollout", kParallel, kAccepted, kNone, kOneWeights, {}, 0},
      {"--rollout-num-gpus", kParallel, kAccepted, kNone, kGpuOnly, {}, 1},
      {"--rollout-num-gpus-per-engine", kParallel, kAccepted, kNone, kGpuOnly, {}, 1},
      {"--num-gpus-per-node", kParallel, kAccepted, kNone, kGpuOnly, {}, 1},
      {"--distributed-backend",
       kParallel,
       kAccepted,
       kNone,
       "one process needs no collectives",
       {},
       1},
      {"--distributed-timeout-minutes",
       kParallel,
       kAccepted,
       kNone,
       "one process needs no collectives",
       {},
       1},
  };
  return kRows;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row.back();
}

template <typename... Forms>
struct Overloaded : Forms... {
  using Forms::operator()...;
};

}  // namespace

std::span<const Flag> flag_table() { return rows(); }

std::string_view group_title(FlagGroup group) {
  switch (group) {
    case kModel:
      return "Model and checkpoints";
    case kData:
      return "Data";
    case kRollout:
      return "Rollout";
    case kReward:
      return "Reward";
    case kAlgorithm:
      return "Algorithm";
    case kOptimizer:
      return "Optimizer";
    case kBatch:
      return "Batches";
    case kEval:
      return "Evaluation";
    case kOutput:
      return "What is written";
    case kShape:
      return "Model shape";
    case kParallel:
      return "Parallel sizes";
  }
  return "";
}

const Flag* find_flag(std::string_view name) {
  const auto row = std::ranges::find(rows(), name, &Flag::name);
  return row == rows().end() ? nullptr : &*row;
}

std::optional<std::string> nearest_flag(std::string_view name) {
  int best = 4;  // more than three letters off is another word
  const Flag* nearest = nullptr;
  for (const Flag& flag : rows()) {
    const int distance = edit_distance(name, flag.name);
    if (distance < best) {
      best = distance;
      nearest = &flag;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return std::string(nearest->name);
}

std::string_view value_word(const Flag& flag) {
  return std::visit(
      Overloaded{
          [&](std::monostate) -> std::string_view {
            return flag.takes_values == 0 ? "" : flag.takes_values == 1 ? "VALUE" : "VALUES...";
          },
          [](bool RunConfig::*) -> std::string_view { return ""; },
          [](int64_t RunConfig::*) -> std::string_view { return "N"; },
          [](std::optional<int64_t> RunConfig::*) -> std::string_view { return "N"; },
          [](double RunConfig::*) -> std::string_view { return "X"; },
          [](std::optional<double> RunConfig::*) -> std::string_view { return "X"; },
          [](std::string RunConfig::*) -> std::string_view { return "WORD"; },
          [](std::vector<std::string> RunConfig::*) -> std::string_view { return "WORDS..."; },
          [](std::vector<int64_t> RunConfig::*) -> std::string_view { return "N..."; }},
      flag.member);
}

std::string default_text(const Flag& flag) {
  static const RunConfig kDefaults;
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); },
                 [](bool RunConfig::*) { return std::string(); },
                 [](int64_t RunConfig::*member) { return std::to_string(kDefaults.*member); },
                 [](double RunConfig::*member) { return fmt::format("{}", kDefaults.*member); },
                 [](std::string RunConfig::*member) { return kDefaults.*member; },
                 [](auto RunConfig::*) { return std::string(); }},
      flag.member);
}

}  // namespace slime::loop
