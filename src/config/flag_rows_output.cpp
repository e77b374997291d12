// What is written: dumps, traces, trackers.

#include "config/aliases.h"
#include "config/flag_rows.h"

namespace slime::config {
namespace {
using C = RunConfig;
}  // namespace

std::vector<FlagRow> output_flags() {
  constexpr std::string_view kTensorBoard =
      "event files are always written, to RUN_DIR/tensorboard";
  constexpr std::string_view kSnapshots = "memory is not recorded; use heaptrack or perf";
  return {
      accepted("--use-tensorboard", kSwitch, kTensorBoard),
      accepted("--tb-project-name", kValue, kTensorBoard),
      accepted("--tb-experiment-name", kValue, kTensorBoard),
      works("--view", &C::view,
            "serve the run's page on this machine while it grows (docs/view.md)")
          .when(kAnyRun),
      works("--view-port", &C::view_port, "port of --view; 0: one that is free").when(kView),
      works("--report-to", &C::report_to,
            "trackers that get metrics, samples and histograms, by their packages of python3 (or "
            "$SLIME_PYTHON): wandb, mlflow, trackio, or all. tensorboard and none need no package: "
            "event files are always written (docs/trackers.md)")
          .when(kAnyRun),
      works("--tracker-project", &C::tracker_project,
            "project of W&B and Trackio, experiment of MLflow; default: slime, of W&B its own")
          .when(kTrackers),
      works("--tracker-run-name", &C::tracker_run_name,
            "name of the run in trackers; default: that of --run-dir")
          .when(kTrackers),
      works("--log-samples", &C::log_samples,
            "samples of each step that TensorBoard and trackers show as text, from the lowest "
            "reward to the highest; 0: none")
          .when(kResponses),
      works("--use-wandb", &C::use_wandb, "the same as wandb in --report-to").when(kAnyRun),
      works("--wandb-mode", &C::wandb_mode, "of wandb", {"online", "offline", "disabled"})
          .when(kWandb),
      works("--wandb-dir", &C::wandb_dir, "where wandb keeps its files; default: --run-dir")
          .when(kWandb),
      works("--wandb-key", &C::wandb_key,
            "API key; default: $WANDB_API_KEY or `wandb login`, which keep it off the command "
            "line. It is "
            "written nowhere")
          .when(kWandb),
      works("--wandb-host", &C::wandb_host, "of a server of your own").when(kWandb),
      works("--wandb-team", &C::wandb_team, "entity").when(kWandb),
      works("--wandb-group", &C::wandb_group, "group, and the beginning of the run's name")
          .when(kWandb),
      works("--wandb-project", &C::wandb_project, "project").when(kWandb),
      works("--wandb-run-id", &C::wandb_run_id, "continue this run").when(kWandb),
      works("--disable-wandb-random-suffix", &C::disable_wandb_random_suffix,
            "do not add a random suffix to the run's name")
          .when(kWandb),
      works("--wandb-always-use-train-step", &C::wandb_always_use_train_step,
            "plot over optimizer steps instead of rollouts")
          .when(kWandb),
      works("--log-multi-turn", &C::log_multi_turn,
            "lengths with and without what tools wrote (multi_turn/...)")
          .when(kGeneration),
      works("--log-reward-category", &C::log_reward_category,
            "share of each value of this field of the reward record (rollout/error_cat/...)")
          .in_run(kRecords),
      accepted("--log-correct-samples", kSwitch,
               "the original computes these figures after it has logged and never shows them"),
      works("--save-debug-rollout-data", &C::save_debug_rollout_data,
            "path with {rollout_id}: the samples of each rollout as JSON lines; one that ends in "
            ".straw.json is an archive: a descriptor, and its lines beside it (docs/resume.md)")
          .when(kAnyRun),
      works("--load-debug-rollout-data", &C::load_debug_rollout_data,
            "train on such files or archives instead of generating")
          .when(kAnyRun),
      works("--load-debug-rollout-data-subsample", &C::load_debug_rollout_data_subsample,
            "use this share of each file's groups, in (0, 1]")
          .when(kDump),
      accepted("--save-debug-train-data", kValue,
               "RUN_DIR/rollouts has tokens, masks, rewards and both log-probs of every step"),
      refused("--load-forge-rollout-data", kValue, "use --load-debug-rollout-data"),
      alias("--dump-details", {.same_as = "--save-debug-rollout-data", .convert = dumps_in_folder},
            "folder: rollout dumps of every step"),
      works("--debug-rollout-only", &C::debug_rollout_only, "generate and score, never train")
          .when(kAnyRun),
      works("--debug-train-only", &C::debug_train_only, "train without an engine").when(kAnyRun),
      works("--no-save-rollouts", &C::no_save_rollouts, "do not keep rollouts for the report")
          .when(kResponses),
      works("--rollout-files-mb-per-step", &C::rollout_files_mb_per_step,
            "of a larger step as many of its groups as fit are kept for the report")
          .when(kRolloutFiles),
      works("--rollout-files-gb", &C::rollout_files_gb,
            "what is kept for the report in all; beyond it the oldest steps go")
          .when(kRolloutFiles),
      works("--custom-rollout-log-function-path", &C::custom_rollout_log_function_path,
            "a function of the user's that sees each rollout; true from it: nothing else is logged "
            "of it")
          .when(kAnyRun),
      works("--custom-eval-rollout-log-function-path", &C::custom_eval_rollout_log_function_path,
            "the same for evaluations")
          .when(kAnyRun),
      works("--profile", &C::profile,
            "write RUN_DIR/trace.json (for ui.perfetto.dev): loop phases, engine steps, kernels")
          .when(kAnyRun),
      works("--profile-step-start", &C::profile_step_start, "first rollout of the trace")
          .when(kProfile),
      works("--profile-step-end", &C::profile_step_end, "rollout that it ends before")
          .when(kProfile),
      accepted("--profile-target", kList, "the trace has every phase, each under its name"),
      accepted("--use-pytorch-profiler", kSwitch, "always so here"),
      accepted("--profile-ranks", kList, "the trace is that of the loop's process"),
      accepted("--record-memory-history", kSwitch, kSnapshots),
      accepted("--memory-recorder", kValue, kSnapshots),
      accepted("--memory-snapshot-dir", kValue, kSnapshots),
      accepted("--memory-snapshot-num-steps", kValue, kSnapshots),
      works("--check-weight-update-equal", &C::check_weight_update_equal,
            "compare checksums of the engines' and the trainer's weights at the start "
            "and after the first update; a difference ends the run and names the "
            "tensors")
          .when(kUpdates),
      accepted("--ci-test", kSwitch, "the original's own tests set it"),
      accepted("--ci-disable-kl-checker", kSwitch, "the original's own tests set it"),
      accepted("--ci-save-grad-norm", kValue, "the original's own tests set it"),
      accepted("--ci-load-grad-norm", kValue, "the original's own tests set it"),
      accepted("--ci-train-rollout-logprob-abs-diff-threshold", kValue,
               "the original's own tests set it"),
  };
}

}  // namespace slime::config
