// SGLang's launch flags that scripts pass through and that set nothing here, or that are refused
// because they would change what is computed. Those that act are in flag_rows_engine.cpp.

#include "config/aliases.h"
#include "config/flag_rows.h"

namespace slime::config {
namespace {

constexpr std::string_view kNoPort = "the engines of a run are reached through its own door";
constexpr std::string_view kOwnPlaces = "the run gives each engine its devices";
constexpr std::string_view kOwnSchedule = "requests are taken in their order, and share prefixes";
constexpr std::string_view kOwnLog = "requests are written to RUN_DIR/rollouts";
constexpr std::string_view kWeightsStay = "weights stay where they are when memory is released";
constexpr std::string_view kOwnDtype =
    "leave it out: the engine computes in --dtype, as the trainer";
constexpr std::string_view kOwnModel =
    "leave it out: the engines have the model of --hf-checkpoint";
constexpr std::string_view kNoAdapters = "leave it out: engines have no adapters";
constexpr std::string_view kPlainWeights =
    "leave it out: the engine's weights are the trainer's, or --rollout-precision fp8";

}  // namespace

std::vector<FlagRow> sglang_flags() {
  return {
      // Where and how the server listens.
      accepted("--sglang-host", kValue, kNoPort),
      accepted("--sglang-port", kValue, kNoPort),
      accepted("--sglang-api-key", kValue, kNoPort),
      accepted("--sglang-admin-api-key", kValue, kNoPort),
      accepted("--sglang-served-model-name", kValue, kNoPort),
      accepted("--sglang-weight-version", kValue, "versions are counted by the run"),
      accepted("--sglang-stream-interval", kValue, kNoPort),
      accepted("--sglang-incremental-streaming-output", kSwitch, kNoPort),
      accepted("--sglang-skip-server-warmup", kSwitch, "there is no warm-up"),
      // Places.
      accepted("--sglang-pp-size", kValue, kOneEngine)
          .where(kLargeEngines, kRanksOfEngine)
          .where(kSeveralEngines, "engines share nothing, requests are spread over them"),
      accepted("--sglang-dist-init-addr", kValue, kOwnPlaces),
      accepted("--sglang-nnodes", kValue, kOwnPlaces),
      accepted("--sglang-node-rank", kValue, kOwnPlaces),
      accepted("--sglang-base-gpu-id", kValue, kOwnPlaces),
      accepted("--sglang-gpu-id-step", kValue, kOwnPlaces),
      refused("--sglang-disaggregation-mode", kValue,
              "leave it out: every engine computes prompts and responses"),
      accepted("--sglang-disaggregation-bootstrap-port", kValue, kWholeEngines),
      // Steps and memory.
      accepted("--sglang-max-queued-requests", kValue, "--sglang-server-concurrency bounds them"),
      accepted("--sglang-max-total-tokens", kValue, "--kv-cache-gb says it"),
      accepted("--sglang-schedule-policy", kValue, kOwnSchedule),
      accepted("--sglang-schedule-conservativeness", kValue,
               "room for running requests is learnt from them"),
      accepted("--sglang-radix-eviction-policy", kValue, "what was used longest ago goes first"),
      accepted("--sglang-enable-mixed-chunk", kSwitch, "steps mix prompts and decoding always"),
      accepted("--sglang-disable-cuda-graph", kSwitch, kGpuPath),
      accepted("--sglang-disable-cuda-graph-padding", kSwitch, kGpuPath),
      accepted("--sglang-enable-torch-compile", kSwitch, kGpuPath),
      accepted("--sglang-sampling-backend", kValue, kGpuPath),
      accepted("--sglang-enable-memory-saver", kSwitch, "memory is released where turns are taken"),
      accepted("--sglang-enable-weights-cpu-backup", kSwitch, kWeightsStay),
      accepted("--sglang-enable-draft-weights-cpu-backup", kSwitch, kWeightsStay),
      accepted("--sglang-enable-hierarchical-cache", kSwitch,
               "keys and values are kept in the device's memory alone"),
      accepted("--sglang-sleep-on-idle", kSwitch, "an engine without requests computes nothing"),
      // What is computed.
      refused("--sglang-model-path", kValue, kOwnModel),
      refused("--sglang-tokenizer-path", kValue, kOwnModel),
      refused("--sglang-json-model-override-args", kValue, kOwnModel),
      refused("--sglang-dtype", kValue, kOwnDtype),
      refused("--sglang-torchao-config", kValue, kPlainWeights),
      refused("--sglang-enable-lora", kSwitch, kNoAdapters),
      refused("--sglang-lora-paths", kList, kNoAdapters),
      refused("--sglang-chat-template", kValue,
              "leave it out: the template of --hf-checkpoint is rendered"),
      alias("--sglang-load-format", {.words = {{"auto", {}}, {"safetensors", {}}}},
            "weights come from the trainer; both words say what is done anyway"),
      accepted("--sglang-random-seed", kValue, "--seed says it"),
      accepted("--sglang-sampling-defaults", kValue, "--rollout-... and --eval-... flags say them"),
      accepted("--sglang-skip-tokenizer-init", kSwitch, "requests of a run are tokens"),
      accepted("--sglang-rl-on-policy-target", kValue, "trainer and engine share their kernels"),
      accepted("--sglang-enable-fp32-lm-head", kSwitch, kAlways),
      accepted("--sglang-enable-return-routed-experts", kSwitch,
               "--use-rollout-routing-replay asks for them"),
      accepted("--sglang-enable-return-hidden-states", kSwitch, "hidden states are not returned"),
      accepted("--sglang-enable-custom-logit-processor", kSwitch, "code of clients is never run"),
      accepted("--sglang-allow-auto-truncate", kSwitch,
               "a prompt that is too long is refused: a cut one means something else"),
      // What people see.
      accepted("--sglang-log-level-http", kValue, "there is one log"),
      accepted("--sglang-log-requests", kSwitch, kOwnLog),
      accepted("--sglang-decode-log-interval", kValue, "metrics of the engine are in the run's"),
      accepted("--sglang-crash-dump-folder", kValue, kOwnLog),
      accepted("--sglang-enable-cache-report", kSwitch, "cached tokens are in the metrics"),
  };
}

}  // namespace slime::config
