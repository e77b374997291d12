// The engine, and engines in processes of their own.

#include "config/flag_rows.h"

namespace slime::config {
namespace {
using C = RunConfig;
}

std::vector<FlagRow> engine_worker_flags() {
  return {
      works("--rollout-num-gpus", &C::rollout_num_gpus,
            "number of GPUs for engines in their own processes, after the trainer's "
            "GPUs; not with --colocate. On CPUs a process with a share of the cores "
            "counts as a device")
          .when(kGeneration),
      works("--rollout-num-gpus-per-engine", &C::rollout_num_gpus_per_engine,
            "tensor-parallel size of an engine: its ranks share heads, feed-forward "
            "width and vocabulary; with --colocate it uses neighbouring training "
            "ranks")
          .when(kEnginesOfRanks),
      accepted("--rollout-num-gpus-per-node", kValue,
               "engines get devices behind those of the ranks that train, on any node"),
      works("--use-fault-tolerance", &C::use_fault_tolerance,
            "restart an engine that dies or hangs; restart all training ranks from "
            "the last checkpoint if one of them does. Without it the run continues "
            "with the remaining engines, and ends with the last one or with any "
            "training rank")
          .when(kWorkers),
      works("--rollout-session-id", &C::rollout_session_id,
            "name under which engines in processes of their own wait for the same command when the "
            "trainer fails, and generated steps that no checkpoint has (docs/resume.md)")
          .when(kAnyRun),
      works("--rollout-cleanup-timeout", &C::rollout_cleanup_timeout,
            "seconds that the engines of a session have to end with the run; then they are killed")
          .when(kSession),
      works("--rollout-session-minutes", &C::rollout_session_minutes,
            "minutes that engines of a session wait without a trainer before they end")
          .when(kSession),
      works("--max-restarts", &C::max_restarts,
            "with --use-fault-tolerance: restarts without progress (an engine that "
            "generates nothing, ranks that train no further step) before the run ends")
          .when(kFaultTolerance),
      works(
          "--rollout-health-check-interval", &C::rollout_health_check_interval,
          "with --use-fault-tolerance or --rollout-session-id (there 600): seconds between checks "
          "of an engine's progress")
          .with("--rollout-num-gpus, and --use-fault-tolerance or --rollout-session-id"),
      works(
          "--rollout-health-check-timeout", &C::rollout_health_check_timeout,
          "with them: seconds without an answer, or without a step while there is something to do, "
          "after which an engine counts as hung")
          .with("--rollout-num-gpus, and --use-fault-tolerance or --rollout-session-id"),
      works("--rollout-health-check-first-wait", &C::rollout_health_check_first_wait,
            "with them: seconds before the first look")
          .with("--rollout-num-gpus, and --use-fault-tolerance or --rollout-session-id"),
      works("--update-weight-buffer-size", &C::update_weight_buffer_size,
            "bytes of new weights that are sent to an engine at once")
          .with("--rollout-num-gpus without --colocate"),
      works("--update-weight-mode", &C::update_weight_mode,
            "how new weights come to engines in processes of their own: all of them, or what has "
            "changed since the update before; disk is all of them through --update-weight-disk-dir",
            {"full", "delta", "disk"})
          .with("--rollout-num-gpus without --colocate"),
      works("--update-weight-transport", &C::update_weight_transport,
            "nccl: over the engines' connections, or from device to device; disk: through "
            "--update-weight-disk-dir",
            {"nccl", "disk"})
          .with("--rollout-num-gpus without --colocate"),
      works("--update-weight-disk-dir", &C::update_weight_disk_dir,
            "folder for new weights on their way to engines, each version in one of its own")
          .with("--update-weight-transport disk"),
      works("--update-weight-disk-keep-files", &C::update_weight_disk_keep_files,
            "keep the files in --update-weight-disk-dir after the engines have read "
            "them")
          .with("--update-weight-transport disk"),
      works(
          "--update-weight-delta-encoding", &C::update_weight_delta_encoding,
          "how what has changed is written: the exclusive or of old and new bits, or the new bits",
          {"xor", "overwrite"})
          .with("--update-weight-mode delta"),
      works("--custom-update-weight-post-write-path", &C::custom_update_weight_post_write_path,
            "a function of the user's that is called when a version's folder is complete, before "
            "engines read it")
          .when(kAnyRun),
      accepted("--update-weight-local-checkpoint-dir", kValue,
               "what has changed is applied to the weights that an engine has in memory"),
      accepted("--update-weight-delta-checksum", kValue,
               "each tensor that has changed is checked by 64-bit xxHash"),
  };
}

std::vector<FlagRow> engine_flags() {
  return {
      works("--sglang-server-concurrency", &C::sglang_server_concurrency,
            "samples in flight at once"),
      works("--sglang-max-running-requests", &C::sglang_max_running_requests,
            "requests in one engine batch"),
      works("--sglang-chunked-prefill-size", &C::sglang_chunked_prefill_size,
            "prompt tokens in one engine step"),
      works("--sglang-context-length", &C::sglang_context_length, "default: the model's"),
      works("--sglang-disable-radix-cache", &C::sglang_disable_radix_cache,
            "do not share prompt prefixes"),
      works("--sglang-kv-cache-dtype", &C::sglang_kv_cache_dtype,
            "precision of the KV cache; auto: that of the activations; fp8_e4m3 (GPU, without "
            "scales) holds twice the tokens, and rollout log-probs move away from the trainer's",
            {"auto", "bf16", "bfloat16", "fp8_e4m3"}),
      works("--sglang-grammar-backend", &C::sglang_grammar_backend,
            "library of constrained decoding: xgrammar, whatever other one is named; none: "
            "requests with a grammar are refused",
            {"xgrammar", "none", "outlines", "llguidance"})
          .when(kGeneration),
      works("--sglang-constrained-json-disable-any-whitespace",
            &C::sglang_constrained_json_disable_any_whitespace,
            "JSON under a grammar has no white space between its parts")
          .when(kGeneration),
      works("--rollout-precision", &C::rollout_precision,
            "how the engine stores the matrices of its layers; auto: as the trainer; fp8: e4m3 in "
            "blocks of 128 by 128, made of the trained weights at each update. Rollout log-probs "
            "move "
            "away from the trainer's: add --use-tis",
            {"auto", "fp8"})
          .when(kGeneration),
      alias("--sglang-quantization", {.words = {{"fp8", {{"--rollout-precision", "fp8"}}}}},
            "fp8: the same as --rollout-precision fp8")
          .when(kGeneration),
      works("--rollout-drafts", &C::rollout_drafts,
            "guess next tokens and verify them in one step, where that is faster; responses stay "
            "the same (docs/speculation.md). suffix: from texts of the same prompt; mtp: by the "
            "model's own layer for multi-token prediction; eagle3: by --rollout-draft-model; "
            "suffix+mtp, suffix+eagle3: by either",
            {"none", "suffix", "mtp", "eagle3", "suffix+mtp", "suffix+eagle3"})
          .with(
              "engines of this run, models without gated delta nets, mtp on CPUs with models whose "
              "config.json tells of such a layer, and eagle3 on CPUs with --rollout-draft-model"),
      works("--rollout-draft-model", &C::rollout_draft_model,
            "with eagle3: directory or name of an EAGLE-3 draft model for this model")
          .with("--rollout-drafts eagle3, on CPUs"),
      works("--rollout-draft-tokens", &C::rollout_draft_tokens,
            "most guesses of a sequence and step, 1 to 15; default 7")
          .with("--rollout-drafts suffix, mtp or eagle3"),
      works("--rollout-draft-always", &C::rollout_draft_always,
            "verify all guesses that there are, also where that is slower: for measurements")
          .with("--rollout-drafts suffix, mtp or eagle3"),
      works("--rollout-draft-text-mb", &C::rollout_draft_text_mb,
            "memory of an engine in MiB for ended responses that are guessed from")
          .with("--rollout-drafts suffix"),
      works("--rollout-verify-tokens", &C::rollout_verify_tokens,
            "tokens that a sequence is decoded as fast as it can be before a step in the trainer's "
            "arithmetic verifies them, 1 to 64 (docs/exact.md). Default 16 on GPUs, and 0 on CPUs, "
            "whose steps have that arithmetic anyway; responses are the same with any N")
          .with("--true-on-policy"),
      works("--rollout-noise", &C::rollout_noise,
            "what the random numbers of a response belong to. sample: that sample of the run. "
            "prompt: the prompt and "
            "the place in its group, so that later epochs begin like earlier ones, whose responses "
            "are better guesses "
            "then (docs/speculation.md)",
            {"sample", "prompt"})
          .when(kGeneration),
      works("--sglang-speculative-algorithm", &C::sglang_speculative_algorithm,
            "NGRAM: the same as --rollout-drafts suffix; NEXTN, and EAGLE without a draft model: "
            "the same as mtp; EAGLE3, and EAGLE with one: the same as eagle3; STANDALONE has no "
            "effect")
          .with("NGRAM, and on CPUs with EAGLE or NEXTN where config.json tells of a layer for "
                "multi-token prediction, and with EAGLE3 or EAGLE and --rollout-draft-model"),
      alias("--sglang-speculative-draft-model-path", {.same_as = "--rollout-draft-model"},
            "with EAGLE3 or EAGLE: directory or name of an EAGLE-3 draft model"),
      works("--sglang-speculative-num-draft-tokens", &C::sglang_speculative_num_draft_tokens,
            "with an algorithm or --rollout-drafts: tokens of a sequence and step, the last known "
            "one among them; N is the same as --rollout-draft-tokens N - 1")
          .with("--sglang-speculative-algorithm NGRAM, NEXTN or EAGLE3"),
      works("--sglang-speculative-num-steps", &C::sglang_speculative_num_steps,
            "with them: the same as --rollout-draft-tokens")
          .with("--sglang-speculative-algorithm NGRAM, NEXTN or EAGLE3"),
      works("--sglang-speculative-eagle-topk", &C::sglang_speculative_eagle_topk,
            "with them: 1, because guesses are one chain")
          .with("--sglang-speculative-algorithm NGRAM, NEXTN or EAGLE3"),
      works("--kv-cache-gb", &C::kv_cache_gb,
            "memory of the KV cache in GiB; 0: 2 on the CPU, on a GPU what a full batch of the "
            "longest requests needs, if there is room")
          .when(kGeneration),
      works("--sglang-mem-fraction-static", &C::sglang_mem_fraction_static,
            "GPU: share of memory for weights and KV cache, at most what training "
            "leaves")
          .when(kDeviceMemory),
      works("--rollout-external-engine-addrs", &C::rollout_external_engine_addrs,
            "servers that draw the responses, HOST:PORT each: `slime serve` or SGLang, started by "
            "somebody else with the model of --hf-checkpoint. New weights come to them through "
            "--update-weight-disk-dir; $SLIME_API_KEY is sent to them")
          .when(kGeneration),
      works("--sglang-config", &C::sglang_config,
            "YAML with groups of engines of the trained model: their number, and settings that "
            "differ (overrides: max_running_requests, chunked_prefill_size, disable_radix_cache, "
            "mem_fraction_static, context_length, kv_cache_dtype, kv_cache_gb)")
          .when(kGeneration),
      refused("--sglang-router-ip", kValue, "leave it out: the run has a router of its own"),
      accepted("--sglang-router-port", kValue, kOneEngine).where(kSeveralEngines, kOwnRouter),
      accepted("--sglang-router-request-timeout-secs", kValue, kOneEngine)
          .where(kSeveralEngines, kOwnRouter),
      accepted("--router-policy", kValue, kOneEngine).where(kSeveralEngines, kOwnRouter),
      accepted("--router-balance-abs-threshold", kValue, kOneEngine)
          .where(kSeveralEngines, kOwnRouter),
      accepted("--prefill-num-servers", kValue, kOneEngine).where(kSeveralEngines, kWholeEngines),
      accepted("--sglang-disaggregation-ib-device", kValue, kOneEngine)
          .where(kSeveralEngines, kWholeEngines),
      accepted("--sglang-disaggregation-transfer-backend", kValue, kOneEngine)
          .where(kSeveralEngines, kWholeEngines),
      accepted("--sglang-tp-size", kValue, "--rollout-num-gpus-per-engine says it"),
      accepted("--sglang-dp-size", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-ep-size", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("----sglang-ep-size", kValue, "a typing error of a published guide"),
      accepted("--sglang-expert-parallel-size", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-moe-dp-size", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-moe-dense-tp-size", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-ep-num-redundant-experts", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-enable-dp-attention", kSwitch, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-enable-dp-lm-head", kSwitch, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-enable-ep-moe", kSwitch, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-enable-deepep-moe", kSwitch, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-moe-a2a-backend", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-deepep-mode", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-dist-timeout", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-custom-pull-weights-pre-read-hook", kValue, kOneWeights)
          .where(kOwnWeights, kTwoWeights),
      accepted("--sglang-page-size", kValue, "the cache chooses its page size"),
      accepted("--sglang-max-prefill-tokens", kValue,
               "--sglang-chunked-prefill-size bounds a step"),
      accepted("--sglang-cuda-graph-bs", kList, kGpuPath),
      accepted("--sglang-cuda-graph-max-bs", kValue, kGpuPath),
      accepted("--sglang-cuda-graph-max-bs-decode", kValue, kGpuPath),
      accepted("--sglang-disable-piecewise-cuda-graph", kSwitch, kGpuPath),
      accepted("--sglang-disable-prefill-cuda-graph", kSwitch, kGpuPath),
      accepted("--sglang-disable-overlap-schedule", kSwitch, kGpuPath),
      accepted("--sglang-attention-backend", kValue, kGpuPath),
      accepted("--sglang-mm-attention-backend", kValue, kGpuPath),
      accepted("--sglang-nsa-decode-backend", kValue, kGpuPath),
      accepted("--sglang-nsa-prefill-backend", kValue, kGpuPath),
      accepted("--sglang-dsa-decode-backend", kValue, kGpuPath),
      accepted("--sglang-dsa-prefill-backend", kValue, kGpuPath),
      accepted("--sglang-dsa-topk-backend", kValue, kGpuPath),
      accepted("--sglang-moe-runner-backend", kValue, kGpuPath),
      accepted("--sglang-fp8-gemm-runner-backend", kValue, kGpuPath),
      accepted("--sglang-enable-fp32-moe-router", kSwitch, kAlways),
      accepted("--sglang-mamba-scheduler-strategy", kValue, kGpuPath),
      accepted("--sglang-enable-deterministic-inference", kSwitch,
               "on the CPU draws do not depend on the batch; on a GPU they may, and it is refused"),
      accepted("--sglang-speculative-draft-attention-backend", kValue, kGpuPath),
      accepted("--sglang-reasoning-parser", kValue, "only agents' adapters read it"),
      accepted("--sglang-tool-call-parser", kValue, "only agents' adapters read it"),
      accepted("--sglang-log-level", kValue, "there is one log")
          .where(kEnginesApart, "each engine has its log in RUN_DIR, of one level"),
      accepted("--sglang-watchdog-timeout", kValue, "there is no second process to watch")
          .where(kEnginesApart,
                 "--worker-timeout-seconds and --rollout-health-check-timeout watch the engines"),
      accepted("--sglang-enable-metrics", kSwitch, "metrics of the engine are always in the run's"),
      accepted("--sglang-trust-remote-code", kSwitch, "code from a model directory is never run"),
      accepted("--sglang-debug-tensor-dump-layers", kList,
               "use `slime logprobs` to compare models"),
      accepted("--sglang-debug-tensor-dump-output-folder", kValue,
               "use `slime logprobs` to compare models"),
  };
}

}  // namespace slime::config
