// How responses are sampled and scored.

#include "config/aliases.h"
#include "config/flag_rows.h"

namespace slime::config {
namespace {
using C = RunConfig;
}

std::vector<FlagRow> rollout_flags() {
  return {
      works("--rollout-function-path", &C::rollout_function_path,
            "your function or class that generates and scores a whole step "
            "(docs/plugins.md); built in: generation, data rows without generation "
            "(slime.rollout.sft_rollout.generate_rollout), and generation that never "
            "stops, as in slime train-async "
            "(slime.rollout.fully_async_rollout.generate_rollout_fully_async)")
          .when(kAnyRun),
      works("--rollout-temperature", &C::rollout_temperature,
            "temperature of sampling, above 0; the trainer divides its logits by it too")
          .when(kAnyRun),
      works("--rollout-top-p", &C::rollout_top_p,
            "nucleus sampling, in (0, 1]; below 1 the trainer normalises log-probs "
            "over the same kept ids"),
      works("--rollout-top-k", &C::rollout_top_k, "-1: all"),
      works("--rollout-max-response-len", &C::rollout_max_response_len, "new tokens per response"),
      works("--rollout-skip-special-tokens", &C::rollout_skip_special_tokens,
            "leave them out of response texts"),
      works("--rollout-stop", &C::rollout_stop, "strings that end a response"),
      works("--rollout-stop-token-ids", &C::rollout_stop_token_ids, "ids that end a response"),
      works("--over-sampling-batch-size", &C::over_sampling_batch_size,
            "prompts started per refill; more than --rollout-batch-size keeps the "
            "engine busy while the last responses finish")
          .when(kGeneration),
      works("--over-sampling-refill", &C::over_sampling_refill,
            "with --partial-rollout: start all prompts at the beginning of the step "
            "(step), or a new one whenever one ends (group), so that the number in "
            "flight stays constant",
            {"step", "group"})
          .with("--partial-rollout"),
      works("--max-filter-ratio", &C::max_filter_ratio,
            "a rollout step whose filter has dropped more than N times --rollout-batch-size groups "
            "ends the run; 0: no limit")
          .with("--dynamic-sampling-filter-path"),
      works("--max-failed-groups", &C::max_failed_groups,
            "failed groups that a rollout step may have, whatever their share")
          .when(kGeneration),
      works("--max-failed-group-share", &C::max_failed_group_share,
            "end the run if more than --max-failed-groups fail and they are a larger "
            "share than this of the step's groups")
          .when(kGeneration),
      works("--max-untrained-steps", &C::max_untrained_steps,
            "end the run after more than N consecutive rollout steps without a token "
            "to train on; 0: no limit")
          .when(kTraining),
      works("--dynamic-sampling-filter-path", &C::dynamic_sampling_filter_path,
            "your function that decides whether a finished group is trained "
            "(docs/plugins.md); built in: "
            "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std "
            "and its fallback form")
          .when(kGeneration),
      works("--partial-rollout", &C::partial_rollout,
            "aborted groups go back to the buffer and continue later"),
      works("--mask-offpolicy-in-partial-rollout", &C::mask_offpolicy_in_partial_rollout,
            "tokens of older weights are not trained")
          .when(kGeneration),
      works("--keep-old-actor", &C::keep_old_actor,
            "compute old log-probs with the weights of the previous update"),
      works("--custom-generate-function-path", &C::custom_generate_function_path,
            "your function that generates each sample, with any turns and tools: "
            "module.name, file.py:name or file.py (docs/plugins.md)")
          .when(kAnyRun),
      works("--generate-timeout-seconds", &C::generate_timeout_seconds,
            "time limit of a call of the generate function; default: "
            "--plugin-timeout-seconds if given, else 1800")
          .when(kDrawingFunction),
      works("--rollout-sample-hook-path", &C::rollout_sample_hook_path,
            "functions of the user's that see each sample before its reward; may be given several "
            "times")
          .when(kAnyRun),
      works("--rollout-sample-filter-path", &C::rollout_sample_filter_path,
            "a function of the user's that sees the groups of a step before they are trained")
          .when(kAnyRun),
      works("--rollout-all-samples-process-path", &C::rollout_all_samples_process_path,
            "the same, with the groups that a filter dropped")
          .when(kAnyRun),
      works("--rollout-data-postprocess-path", &C::rollout_data_postprocess_path,
            "your function that changes a step's training data after the advantages")
          .when(kAnyRun),
      accepted("--release-train", kSwitch, kOneWeights).where(kOwnWeights, kTwoWeights),
      accepted("--use-distributed-post", kSwitch, "ranks hand their results over by themselves"),
      accepted("--use-http2", kSwitch, "requests to the run's own door are HTTP/1.1"),
      accepted("--http-proxy", kValue, "the original does not use it either"),
  };
}

std::vector<FlagRow> async_flags() {
  return {
      works("--train-async", &C::train_async,
            "generate and train concurrently; set by `slime train-async`")
          .when(kAnyRun),
      alias("--fully-async", {.words = {{"", {{"--train-async", ""}}}}},
            "the same as --train-async"),
      works("--colocate", &C::colocate,
            "trainer and engine take turns on the same devices; always so in `slime "
            "train` without --rollout-num-gpus")
          .when(kAnyRun),
      works(
          "--flush-cache-interval", &C::flush_cache_interval,
          "updates of the engine between two that abort requests and drop their cache; the others "
          "pause them in place. 1: each one drops; 0 or less: only the first")
          .when(kAnyRun),
      accepted("--update-weight-max-inflight-engine-groups", kValue,
               "engines get new weights all at once"),
      accepted("--fully-async-pool-size", kValue, "--sglang-server-concurrency says it"),
      accepted("--fully-async-max-queued-batches", kValue, "--async-buffer-size says it"),
      accepted("--fully-async-drain-each-epoch", kSwitch, "generation goes on over epochs"),
      accepted("--async-strategy", kValue,
               "slime train-async, --update-mode and --max-staleness say it"),
      works("--max-staleness", &C::max_staleness,
            "how many updates older than the trainer's weights the weights that "
            "started a response may be; default 1; 0 is on-policy")
          .when(kAsyncRun),
      alias("--max-weight-staleness", {.same_as = "--max-staleness"}, "the same as --max-staleness")
          .when(kAsyncRun),
      alias("--max-policy-version-lag", {.same_as = "--max-staleness"},
            "the same as --max-staleness")
          .when(kAsyncRun),
      alias("--fully-async-version-window", {.same_as = "--max-staleness"},
            "the same as --max-staleness")
          .when(kAsyncRun),
      alias("--staleness-threshold",
            {.same_as = "--max-staleness", .convert = whole_updates, .value_like = &C::eps_clip_c},
            "the same as --max-staleness, rounded down")
          .when(kAsyncRun),
      alias("--fully-async-buffer-policy",
            {.words = {{"legacy_backpressure", {{"--async-order", "dispatch"}}},
                       {"window_evict",
                        {{"--async-order", "finish"}, {"--staleness-policy", "drop"}}}}},
            "legacy_backpressure: the same as --async-order dispatch; window_evict: as "
            "--async-order finish --staleness-policy drop")
          .when(kAsyncRun),
      refused("--fully-async-eviction-policy", kValue,
              "who is over the bound leaves, oldest first; use --staleness-policy drop or retry"),
      works("--staleness-policy", &C::staleness_policy,
            "what to do with groups that would exceed --max-staleness: wait for them, "
            "drop them, retry them from the prompt, or train them with a correction "
            "(correct)",
            {"wait", "drop", "retry", "correct"})
          .when(kAsyncRun),
      alias("--async-unused-samples-handler",
            {.words = {{"drop", {{"--staleness-policy", "drop"}}},
                       {"retry", {{"--staleness-policy", "retry"}}}}},
            "the same as --staleness-policy")
          .when(kAsyncRun),
      works("--async-order", &C::async_order,
            "train groups in the order in which they were started (dispatch) or "
            "finished (finish)",
            {"dispatch", "finish"})
          .when(kAsyncRun),
      works("--async-buffer-size", &C::async_buffer_size,
            "finished rollouts that may wait for training; default 2")
          .when(kAsyncRun),
      alias("--async-data-buffer-capacity-factor",
            {.same_as = "--async-buffer-size",
             .convert = whole_rollouts,
             .value_like = &C::eps_clip_c},
            "the same as --async-buffer-size")
          .when(kAsyncRun),
      alias("--fully-async-max-completed-samples",
            {.same_as = "--async-buffer-size",
             .convert = rollouts_of_samples,
             .value_like = &C::max_staleness},
            "the same as --async-buffer-size, in samples instead of rollouts")
          .when(kAsyncRun),
      accepted("--rs-batch-refill", kSwitch, "groups that are rejected are always replaced"),
      accepted("--rs-refill-max-rounds", kValue,
               "groups that are rejected are replaced until the batch is whole"),
      works("--update-weights-interval", &C::update_weights_interval,
            "rollouts trained between updates of the engine; `slime train` updates after each")
          .with("slime train-async"),
      works("--update-mode", &C::update_mode,
            "what running requests do when the engine gets new weights: pause for one "
            "iteration (suspend), abort and continue from their tokens (interrupt), "
            "or finish first (drain)",
            {"suspend", "interrupt", "drain"})
          .when(kAsyncRun),
      works("--kv-on-update", &C::kv_on_update,
            "KV cache of suspended requests: kept; recomputed with the new weights at "
            "once; or dropped, and recomputed after all waiting requests",
            {"keep", "recompute", "drop"})
          .when(kAsyncRun),
      works("--restart-mode", &C::restart_mode,
            "unfinished groups of a checkpoint: continue each sample from its tokens (sibling), or "
            "generate the group again from its prompt (prompt_group)",
            {"sibling", "prompt_group"})
          .when(kAsyncRun),
      alias("--keep-cache-on-weight-update",
            {.words = {{"", {{"--update-mode", "suspend"}, {"--kv-on-update", "keep"}}}}},
            "the same as --update-mode suspend --kv-on-update keep")
          .when(kAsyncRun),
      alias("--pause-generation-mode",
            {.words = {{"in_place", {{"--update-mode", "suspend"}, {"--kv-on-update", "keep"}}},
                       {"retract", {{"--update-mode", "suspend"}, {"--kv-on-update", "recompute"}}},
                       {"abort", {{"--update-mode", "interrupt"}}}}},
            "the same as --update-mode and --kv-on-update: suspend and keep, suspend and "
            "recompute, interrupt")
          .when(kAsyncRun),
      alias("--async-max-concurrent-samples", {.same_as = "--sglang-server-concurrency"},
            "the same as --sglang-server-concurrency")
          .when(kAsyncRun),
      alias("--rollout-submission-granularity", {.words = {{"sample", {}}}},
            "a place is filled when one sample has ended; by whole groups is refused")
          .when(kAsyncRun),
      refused(
          "--custom-async-data-buffer-path", kValue,
          "the queue of finished groups is the program's; use --async-order, --staleness-policy "
          "and --async-buffer-size"),
      works("--rollout-num-threads", &C::rollout_num_threads,
            "CPU threads of an engine that runs concurrently with a trainer; 0: half "
            "of --num-threads")
          .when(kEngineThreads),
      works("--deterministic-schedule", &C::deterministic_schedule,
            "generation and training advance in counted rounds instead of by the "
            "clock, so the run depends only on its seeds; slower, for debugging")
          .when(kAsyncRun),
      works("--schedule-round", &C::schedule_round,
            "with --deterministic-schedule: tokens that each sample draws in a round")
          .when(kRounds),
      works("--schedule-train-rounds", &C::schedule_train_rounds,
            "with --deterministic-schedule: rounds that one training step takes; 0 with "
            "--colocate")
          .when(kRounds),
  };
}

std::vector<FlagRow> queue_flags() {
  return {
      works(
          "--rollout-data-transport", &C::rollout_data_transport,
          "straw: groups that wait are given out by the age of their weights, and a queue goes on "
          "exactly or not at all. Nothing that was generated is lost in either case: the ledger "
          "is always kept (docs/resume.md)",
          {"straw", "object-store", "nixl"})
          .when(kAnyRun),
      works("--rollout-data-dir", &C::rollout_data_dir,
            "folder of the rollout files of runs; RUN_DIR/rollouts leads there. Default: "
            "RUN_DIR/rollouts")
          .when(kQueue),
      works("--rollout-storage-profile", &C::rollout_storage_profile,
            "juicefs: a run is refused where its folder has no file locks", {"local", "juicefs"})
          .when(kQueue),
      works("--rollout-storage-declaration", &C::rollout_storage_declaration,
            "JSON file that declares what a JuiceFS mount promises, and is checked")
          .when(kQueue),
      works("--rollout-queue-run-id", &C::rollout_queue_run_id,
            "name of the run: it is in every checkpoint, and one of another name is refused")
          .when(kQueue),
      works("--rollout-queue-online-gc", &C::rollout_queue_online_gc,
            "behind each checkpoint, delete what no checkpoint needs: records of the ledger "
            "(their sums stay) and rollout files")
          .when(kQueue),
      accepted("--rollout-queue-lease-seconds", kValue,
               "a worker's groups are drawn again once its connection or its heartbeat ends, which "
               "no lease has to wait for"),
      works(
          "--rollout-queue-segment-mib", &C::rollout_queue_segment_mib,
          "--rollout-queue-online-gc waits until so much of the ledger is to be deleted; default: "
          "until it is half of it")
          .when(kQueue),
      accepted("--rollout-io-concurrency", kValue,
               "one thread writes rollout files, beside the loop and in order"),
  };
}

std::vector<FlagRow> reward_flags() {
  return {
      works(
          "--rm-type", &C::rm_type,
          "rule that scores responses: math, dapo, dapo_box, deepscaler, f1, gpqa, gsm8k, ifbench, "
          "random, remote_rm, each also as boxed_...; a row's metadata.rm_type wins; math_verify "
          "asks the package of that "
          "name in a plug-in host")
          .when(kGeneration),
      works("--no-rm-strict", &C::no_rm_strict,
            "grade as the original does, including answers that it wrongly accepts "
            "(docs/rewards.md)")
          .at_start(kRules),
      works("--rm-url", &C::rm_url, "server of remote_rm, or with --opd-type sglang the teacher")
          .at_start(kRules),
      works("--remote-rm-attempts", &C::remote_rm_attempts,
            "calls of remote_rm before a sample has failed")
          .at_start(kRules),
      works("--reward-key", &C::reward_key, "field of a reward record that trains"),
      works("--eval-reward-key", &C::eval_reward_key,
            "field of a reward record in evaluation; default: --reward-key")
          .when(kEvaluation),
      works("--reward-timeout-seconds", &C::reward_timeout_seconds,
            "a slower reward is a failure, not a 0; of a server: of each call, from connecting to "
            "the "
            "last byte. Default: 30, of a server 120")
          .when(kGeneration),
      works("--reward-threads", &C::reward_threads,
            "rewards computed at once; with --rm-url at least 64")
          .when(kGeneration),
      works("--overlong-buffer-len", &C::overlong_buffer_len,
            "DAPO: length in tokens, before --rollout-max-response-len, of the range "
            "in which the penalty grows"),
      works("--overlong-penalty-factor", &C::overlong_penalty_factor,
            "DAPO: penalty at --rollout-max-response-len; it grows linearly over the "
            "last --overlong-buffer-len tokens")
          .with("--overlong-buffer-len"),
      works(
          "--custom-rm-path", &C::custom_rm_path,
          "your reward function: module.name, file.py:name or file.py (docs/plugins.md); built in: "
          "slime.rollout.on_policy_distillation.reward_func")
          .when(kAnyRun),
      works("--plugin-python", &C::plugin_python, "interpreter that users' functions run in")
          .when(kUsersCode),
      works("--plugin-hosts", &C::plugin_hosts,
            "processes that run users' functions; more than one for functions that compute")
          .when(kUsersCode),
      works("--plugin-timeout-seconds", &C::plugin_timeout_seconds,
            "a call of a user's function that takes longer has failed; of rewards "
            "--reward-timeout-seconds wins")
          .when(kUsersCode),
      works("--plugin-memory-gb", &C::plugin_memory_gb,
            "a host that holds more, with all that it started, is ended and replaced; 0: no limit")
          .when(kUsersCode),
      works("--plugin-repeat-lost-calls", &C::plugin_repeat_lost_calls,
            "make calls again that had begun and were waiting when another call ended "
            "their host; without it they fail")
          .when(kUsersCode),
      works("--custom-reward-post-process-path", &C::custom_reward_post_process_path,
            "a function of the user's in the place of group normalisation; built in: "
            "slime.rollout.on_policy_distillation.post_process_rewards")
          .when(kAnyRun),
      works("--group-rm", &C::group_rm,
            "the function of --custom-rm-path gets all samples of a prompt in one call")
          .when(kRewardFunction),
  };
}

}  // namespace slime::config
