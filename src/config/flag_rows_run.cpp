// Model, data, evaluation.

#include "config/aliases.h"
#include "config/flag_rows.h"

namespace slime::config {
namespace {

constexpr Condition kPrompts{
    "prompts of rollouts, or rows of --prompt-data",
    [](const RunConfig& c) { return !c.trains_on_rows() || !c.prompt_data.empty(); }};
using C = RunConfig;
}  // namespace

std::vector<FlagRow> model_flags() {
  return {
      works("--hf-checkpoint", &C::hf_checkpoint,
            "model directory, or the name of a model on Hugging Face's hub: Qwen/Qwen3-0.6B, "
            "Qwen/Qwen3-0.6B@REVISION (docs/names.md); a run's directory is its newest checkpoint")
          .when(kAnyRun),
      works("--ref-load", &C::ref_load,
            "model directory, or folder of checkpoints, of the KL reference; default: "
            "--hf-checkpoint. Also the actor's initial weights if --load has none")
          .when(kAnyRun),
      works("--load", &C::load,
            "folder of checkpoints to continue from, or a model directory with the "
            "initial weights; default: --save, if it holds a checkpoint. An error if "
            "neither exists, unless it is the folder of --save itself or --ref-load "
            "is given (docs/resume.md)")
          .when(kAnyRun),
      works("--finetune", &C::finetune, "take only the weights of --load, and start at rollout 0")
          .at_start(kCheckpoint),
      works("--allow-other-experiment", &C::allow_other_experiment,
            "continue from a checkpoint with another model, reward or objective")
          .when(kAnyRun),
      works("--save", &C::save, "checkpoint folder; default: --run-dir").when(kAnyRun),
      works("--save-interval", &C::save_interval,
            "save every N rollouts; the last one is always saved")
          .when(kTraining),
      accepted("--save-hf", kValue,
               "every checkpoint is a Hugging Face directory; see RUN_DIR/latest"),
      works("--keep-checkpoints", &C::keep_checkpoints,
            "delete all but the newest N checkpoints; 0 keeps all, as the original does")
          .when(kTraining),
      works("--no-save-optim", &C::no_save_optim,
            "leave the optimizer state out of checkpoints (no exact resume)")
          .when(kTraining),
      works("--no-load-optim", &C::no_load_optim,
            "start with zero optimizer moments; schedules, counters and the critic "
            "continue")
          .at_start(kCheckpoint),
      accepted("--no-load-rng", kSwitch,
               "random numbers follow from seeds and ordinals: there is no state to leave out"),
      works("--ckpt-step", &C::ckpt_step,
            "go on from the checkpoint of this rollout; where the run is further already, in a new "
            "branch of it (docs/resume.md)")
          .when(kAnyRun),
      accepted("--no-save-rng", kSwitch,
               "random numbers follow from seeds and ordinals: there is no state to leave out"),
      works("--start-rollout-id", &C::start_rollout_id,
            "first rollout; normally restored from the checkpoint")
          .when(kAnyRun),
      works(
          "--overwrite", &C::overwrite,
          "start over in a --run-dir that has results: they are deleted, checkpoints too. Not for "
          "commands that are restarted")
          .when(kAnyRun),
      works("--dry-run", &C::dry_run,
            "check the flags and say what a run would need and refuse; nothing is loaded or "
            "written")
          .when(kAnyRun),
      works("--allow-unknown-flags", &C::allow_unknown_flags, "unknown flags do not stop the run")
          .when(kAnyRun),
      works("--from-launch-script", &C::from_launch_script,
            "added by train.py and train_async.py: an unknown flag is reported at the "
            "start and at the end; it stops the run only if its name is about the "
            "objective, the optimizer, the data, adapters or precision")
          .when(kAnyRun),
      works("--run-dir", &C::run_dir, "folder for metrics, rollouts, report and checkpoints")
          .when(kAnyRun),
      works("--device", &C::device,
            "cpu, or cuda; auto: cuda where an NVIDIA GPU is visible. Trainer and engine share the "
            "first visible GPU, unless "
            "--rollout-num-gpus gives engines others. hip: an AMD GPU (ROCm preview: builds for "
            "gfx942 and gfx950, kernels checked without hardware, not yet run on it)",
            {"auto", "cpu", "cuda", "hip"})
          .when(kAnyRun),
      works("--dtype", &C::dtype, "precision of the weights; the master copy is float32",
            {"bfloat16", "float16", "float32", "float64"})
          .when(kAnyRun),
      alias("--bf16", {.words = {{"", {{"--dtype", "bfloat16"}}}}}, "same as --dtype bfloat16"),
      alias("--fp16", {.words = {{"", {{"--dtype", "float16"}}}}}, "same as --dtype float16"),
      alias("--fp32", {.words = {{"", {{"--dtype", "float32"}}}}}, "same as --dtype float32"),
      works("--seed", &C::seed, "seed of sampling and of fresh weights").when(kAnyRun),
      works("--num-threads", &C::num_threads,
            "CPU threads; 0: all cores. A process with a GPU has at most 8")
          .when(kAnyRun),
      works("--custom-config-path", &C::custom_config_path,
            "YAML file of flags that take precedence over the command line; other "
            "keys are passed to plug-ins")
          .when(kAnyRun),
      works("--megatron-config-path", &C::megatron_config_path,
            "YAML with a list `megatron` of {role: actor or critic, overrides: flags}")
          .when(kAnyRun),
      accepted("--ckpt-format", kValue, "there is one form, Hugging Face safetensors"),
      refused("--ref-ckpt-step", kValue, "give the checkpoint's own folder to --ref-load"),
      accepted("--async-save", kSwitch, "checkpoints are written before the next step starts"),
      accepted("--distrib-optim-fully-reshardable-mem-efficient", kSwitch,
               "checkpoints fit any number of ranks"),
      accepted("--use-checkpoint-opt-param-scheduler", kSwitch,
               "the flags say the schedule, the checkpoint its position"),
      accepted("--train-backend", kValue, "there is one trainer"),
      accepted("--model-name", kValue, "no conversion step exists"),
      accepted("--trust-remote-code", kSwitch, "code from a model directory is never run"),
      accepted("--transformer-impl", kValue, "there is one implementation"),
      accepted("--enable-experimental", kSwitch, "there is one implementation"),
      works("--deterministic-mode", &C::deterministic_mode,
            "training on a GPU adds attention's gradients in one order: two runs of the command, "
            "and a resumed one, are equal to the bit on one card (docs/exact.md), at the cost of "
            "time and memory. On CPUs always so; slime train-async goes by the clock without "
            "--deterministic-schedule")
          .with("training on GPUs; on CPUs a run repeats bit for bit anyway"),
      accepted("--train-env-vars", kValue,
               "there are no training processes; set the environment of the command")
          .where(kSeveralRanks, "ranks have the environment of the command; set it there"),
      refused("--custom-model-provider-path", kValue,
              "a model of another form is a family in C++ (docs/adding_a_family.md)"),
      accepted("--spec", kList,
               "a layer specification is Python; the architecture comes from config.json"),
      works("--custom-megatron-init-path", &C::custom_megatron_init_path,
            "a function of the user's that is called once beside the trainer (docs/plugins.md)")
          .when(kAnyRun),
      works("--custom-megatron-before-log-prob-hook-path",
            &C::custom_megatron_before_log_prob_hook_path,
            "a function of the user's that is called before each pass without gradient")
          .when(kAnyRun),
      works("--custom-megatron-before-train-step-hook-path",
            &C::custom_megatron_before_train_step_hook_path,
            "a function of the user's that is called before each training step")
          .when(kAnyRun),
  };
}

std::vector<FlagRow> data_flags() {
  return {
      works("--prompt-data", &C::prompt_data,
            "files of prompts, or data sets of the hub: openai/gsm8k:train; each may end in @[a:b]")
          .when(kRowsOfData),
      works("--input-key", &C::input_key, "field with the prompt: a string or a list of messages")
          .when(kRowsOfData),
      works("--label-key", &C::label_key,
            "field with the right answer, or a path such as reward_model.ground_truth")
          .when(kResponses),
      works("--metadata-key", &C::metadata_key, "field with an object that travels with the sample")
          .when(kRowsOfData),
      works("--tool-key", &C::tool_key, "field with the tools of the chat template")
          .when(kToolsOfRows),
      works(
          "--data-format", &C::data_format,
          "how the fields of rows are named: auto recognises published schemas where --input-key "
          "is not given (docs/data.md)",
          {"auto", "none", "gsm8k", "math", "dapo", "sharegpt", "ultrafeedback", "alpaca", "chat"})
          .when(kRowsOfData),
      works("--rename-columns", &C::rename_columns,
            "old=new ...: fields of rows get other names, before the keys are looked up")
          .when(kRowsOfData),
      works("--chosen-key", &C::chosen_key, "field with the preferred response (dpo_loss)")
          .when(kPreferences),
      works("--rejected-key", &C::rejected_key, "field with the rejected response (dpo_loss)")
          .when(kPreferences),
      works("--apply-chat-template", &C::apply_chat_template,
            "render messages with the model's chat template")
          .when(kPrompts),
      works("--apply-chat-template-kwargs", &C::apply_chat_template_kwargs,
            "JSON object of template variables")
          .at_start(kMessages),
      works("--rollout-shuffle", &C::rollout_shuffle, "a new order each epoch, from --rollout-seed")
          .when(kRowsOfData),
      works("--rollout-seed", &C::rollout_seed, "seed of the order of prompts").when(kShuffle),
      works("--num-rollout", &C::num_rollout, "number of rollout steps; wins over --num-epoch")
          .when(kAnyRun),
      works("--num-epoch", &C::num_epoch,
            "passes over the data; batches continue across epochs, and the last batch "
            "is filled from the next epoch")
          .when(kNoCount),
      works("--rollout-batch-size", &C::rollout_batch_size, "prompts per rollout step")
          .when(kAnyRun),
      works("--n-samples-per-prompt", &C::n_samples_per_prompt, "responses per prompt")
          .when(kAnyRun),
      works("--num-data-workers", &C::num_data_workers,
            "threads that read, render and tokenise the data set; 0: all cores")
          .when(kRowsOfData),
      works("--streaming-data", &C::streaming_data,
            "read rows while training instead of all at the start; needs rows in file order")
          .when(kRowsOfData),
      works("--completion-key", &C::completion_key,
            "field with what follows the prompt (sft_loss); only that is trained then")
          .when(kSupervised),
      works("--loss-mask-type", &C::loss_mask_type,
            "the family of the chat template in supervised training; auto reads any template, a "
            "name that does not fit is refused",
            {"auto", "qwen", "qwen3", "qwen3_5", "distill_qwen"})
          .when(kRowTraining),
      works("--trained-answers", &C::trained_answers,
            "sft_loss: which answers of a conversation are trained: all; those after "
            "the last user message; those that the template still renders as when "
            "they were written",
            {"all", "last", "unchanged"})
          .when(kSupervised),
      works("--no-special-tokens-in-content", &C::no_special_tokens_in_content,
            "tokenise control tokens in the text of users and tools as ordinary text")
          .at_start(kMessages),
      works("--rollout-max-prompt-len", &C::rollout_max_prompt_len,
            "leave out longer prompts when loading; for supervised rows: tokens "
            "before the first trained one")
          .when(kRowsOfData),
      works("--rollout-max-context-len", &C::rollout_max_context_len,
            "prompt and response together; longer supervised rows are left out")
          .when(kAnyRun),
      works(
          "--data-source-path", &C::data_source_path,
          "a class of the user's that gives prompts out (docs/plugins.md); built in: the data set "
          "with a buffer")
          .when(kAnyRun),
      works("--environment", &C::environment,
            "an environment that gives the prompts, generates and scores: verifiers:NAME, "
            "openenv:ADDRESS, harbor:FOLDER, gym:MODULE:FACTORY (docs/environments.md)")
          .when(kAnyRun),
      works("--environment-args", &C::environment_args,
            "with --environment: its settings, a JSON object")
          .when(kEnvironment),
      works("--disable-rollout-global-dataset", &C::disable_rollout_global_dataset,
            "no --prompt-data: prompts are made by --data-source-path or --rollout-function-path")
          .when(kAnyRun),
      works("--buffer-filter-path", &C::buffer_filter_path,
            "a function of the user's that chooses which groups that wait come first; built in, "
            "and the default: slime.rollout.data_source.pop_first")
          .when(kAnyRun),
      refused("--multimodal-keys", kValue,
              "text models only; leave it out to train on the texts of the rows"),
      works("--rollout-buffer-url", &C::rollout_buffer_url,
            "a rollout buffer service (slime buffer) that --rollout-function-path "
            "slime.rollout.buffer_rollout.generate_rollout takes finished groups from "
            "(docs/buffer.md)")
          .when(kBufferFunction),
      works("--fetch-trajectory-retry-times", &C::fetch_trajectory_retry_times,
            "with --rollout-buffer-url: consecutive failed reads before the run ends; "
            "-1: no limit")
          .when(kBufferFunction),
      works("--buffer-sort-by-staleness", &C::buffer_sort_by_staleness,
            "groups that wait with the oldest tokens come first; --buffer-filter-path wins over it")
          .when(kAnyRun),
      accepted("--min-batch-collection-ratio", kValue, "a step trains its whole batch"),
      works("--rollout-task-type", &C::rollout_task_type,
            "with --rollout-buffer-url: the generator to use")
          .when(kBufferFunction),
      works("--custom-convert-samples-to-train-data-path",
            &C::custom_convert_samples_to_train_data_path,
            "a function of the user's that makes the batch of a step's samples")
          .when(kAnyRun),
  };
}

std::vector<FlagRow> evaluation_flags() {
  return {
      works("--eval-prompt-data", &C::eval_prompt_data,
            "pairs of name and path, or data set of the hub: openai/gsm8k:test")
          .when(kAnyEvaluation),
      works("--eval-config", &C::eval_config,
            "YAML of data sets, each with its own sampling, keys and reward")
          .when(kAnyEvaluation),
      works("--eval-interval", &C::eval_interval, "evaluate every N rollouts").when(kAnyEvaluation),
      works("--skip-eval-before-train", &C::skip_eval_before_train,
            "no evaluation before the first rollout")
          .when(kAnyEvaluation),
      works("--eval-input-key", &C::eval_input_key, "default: --input-key").when(kAnyEvaluation),
      works("--eval-label-key", &C::eval_label_key, "default: --label-key")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-tool-key", &C::eval_tool_key, "default: --tool-key").when(kAnyEvaluation),
      works("--n-samples-per-eval-prompt", &C::n_samples_per_eval_prompt,
            "responses per evaluation prompt")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-temperature", &C::eval_temperature,
            "0 is greedy; default: --rollout-temperature")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-top-p", &C::eval_top_p, "default: --rollout-top-p")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-top-k", &C::eval_top_k, "default: --rollout-top-k")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-max-response-len", &C::eval_max_response_len,
            "default: --rollout-max-response-len")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-max-prompt-len", &C::eval_max_prompt_len, "drop longer evaluation prompts")
          .when(kEvaluation),
      works("--eval-max-context-len", &C::eval_max_context_len,
            "prompt and response together; default: --rollout-max-context-len")
          .when(kEvaluation),
      works("--eval-min-new-tokens", &C::eval_min_new_tokens, "no end token before")
          .with("--eval-interval and a data set of evaluation"),
      works("--eval-leave-out-failed", &C::eval_leave_out_failed,
            "failed samples are no part of the scores; otherwise they count 0")
          .when(kEvaluation),
      works("--log-passrate", &C::log_passrate, "pass@1, 2, 4, ... of the groups").when(kResponses),
      works("--eval-function-path", &C::eval_function_path,
            "a function or class of the user's that evaluates (docs/plugins.md); built in: "
            "generation. Default: --rollout-function-path")
          .when(kAnyRun),
  };
}

}  // namespace slime::config
