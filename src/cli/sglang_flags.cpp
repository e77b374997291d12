#include "cli/sglang_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ranges>
#include <string>
#include <vector>

namespace slime::cli {
namespace {

using enum SglangFlag::Takes;

constexpr std::string_view kOneEngine =
    "the ranks of --tp-size share all of the model; start one server for each replica";
constexpr std::string_view kOneHost = "all ranks are on this machine";
constexpr std::string_view kOwnPath = "the program chooses its own kernels";
constexpr std::string_view kOwnGraphs = "decode steps are recorded where there is a GPU";
constexpr std::string_view kNoSplit = "each server computes prompts and responses";
constexpr std::string_view kOwnLog = "the server prints only what a person must know";
constexpr std::string_view kWeightsStay = "weights stay where they are when memory is released";

constexpr SglangFlag value(const char* name, std::string_view usual, std::string_view reason) {
  return {.name = name, .takes = kWord, .usual = usual, .reason = reason};
}
constexpr SglangFlag list(const char* name, std::string_view reason) {
  return {.name = name, .takes = kWords, .reason = reason};
}
constexpr SglangFlag word(const char* name, std::string_view reason) {
  return {.name = name, .takes = kNothing, .reason = reason};
}

constexpr auto kFlags = std::to_array<SglangFlag>({
    // The model.
    value("--load-format", "auto safetensors", "weights are read from *.safetensors"),
    word("--trust-remote-code", "no code of a model directory is ever run"),
    value("--quantization", "none null", "weights are computed with as --dtype says"),
    word("--enable-fp32-lm-head", "logits are float32 numbers always"),
    value("--rl-on-policy-target", "none",
          "trainer and server of this program share their kernels"),
    value("--max-loras-per-batch,--max-loras", "", "a batch may mix all loaded adapters"),
    value("--max-lora-rank", "", "adapters may have any rank"),
    list("--lora-target-modules", "adapters may be for any matrices"),
    value("--lora-backend", "", kOwnPath),
    value("--lora-eviction-policy", "lru", "what was used longest ago goes first"),
    // Memory.
    value("--mem-fraction-static", "", "memory is set by --kv-cache-gib or --max-total-tokens"),
    value("--page-size", "16", "pages of keys and values have 16 tokens"),
    value("--radix-eviction-policy", "lru", "what was used longest ago goes first"),
    word("--enable-memory-saver", "memory of keys and values can be released always"),
    word("--enable-weights-cpu-backup", kWeightsStay),
    word("--enable-draft-weights-cpu-backup", kWeightsStay),
    word("--enable-hierarchical-cache", "keys and values are kept in the device's memory alone"),
    // Steps.
    value("--max-prefill-tokens", "", "--chunked-prefill-size bounds the prompt tokens of a step"),
    value("--schedule-policy", "fcfs", "requests are taken in their order, and share prefixes"),
    value("--schedule-conservativeness", "1 1.0", "room for running requests is learnt from them"),
    word("--enable-mixed-chunk", "steps mix prompts and decoding always"),
    word("--disable-overlap-schedule", kOwnPath),
    word("--disable-cuda-graph", kOwnGraphs),
    word("--disable-cuda-graph-padding", kOwnGraphs),
    value("--cuda-graph-max-bs", "", kOwnGraphs),
    list("--cuda-graph-bs", kOwnGraphs),
    word("--enable-torch-compile", kOwnPath),
    value("--attention-backend", "auto", kOwnPath),
    value("--sampling-backend", "", kOwnPath),
    value("--moe-runner-backend", "auto", kOwnPath),
    word("--enable-deterministic-inference",
         "on the CPU draws do not depend on the batch; on a GPU they may"),
    // Where it computes.
    value("--dp-size,--data-parallel-size,--dp", "1", kOneEngine),
    value("--ep-size,--expert-parallel-size,--ep", "1", kOneEngine),
    value("--pp-size,--pipeline-parallel-size,--pp", "1", kOneEngine),
    word("--enable-dp-attention", kOneEngine),
    word("--enable-dp-lm-head", kOneEngine),
    value("--moe-dense-tp-size", "", kOneEngine),
    value("--moe-a2a-backend", "none", kOneEngine),
    value("--deepep-mode", "auto", kOneEngine),
    value("--ep-num-redundant-experts", "0", kOneEngine),
    value("--dist-init-addr,--nccl-init-addr", "", kOneHost),
    value("--nnodes", "1", kOneHost),
    value("--node-rank", "0", kOneHost),
    value("--base-gpu-id", "0", "CUDA_VISIBLE_DEVICES chooses the GPUs"),
    value("--gpu-id-step", "1", "CUDA_VISIBLE_DEVICES chooses the GPUs"),
    value("--disaggregation-mode", "null none", kNoSplit),
    value("--disaggregation-bootstrap-port", "", kNoSplit),
    value("--disaggregation-transfer-backend", "", kNoSplit),
    // What clients see.
    word("--enable-metrics", "/metrics is always on"),
    word("--enable-cache-report", "usage tells cached tokens always"),
    word("--enable-return-hidden-states", "hidden states are not returned"),
    word("--enable-custom-logit-processor", "code of clients is never run"),
    word("--allow-auto-truncate",
         "a prompt that is too long is refused: a cut one means something else"),
    word("--skip-server-warmup", "there is no warm-up"),
    // What people see.
    value("--log-level", "", kOwnLog),
    value("--log-level-http", "", kOwnLog),
    word("--log-requests", "requests are never logged"),
    value("--decode-log-interval", "", kOwnLog),
    value("--crash-dump-folder", "", "requests are never written to disk"),
    word("--sleep-on-idle", "a server without requests computes nothing"),
});

bool is_usual(const SglangFlag& flag, const std::vector<std::string>& words) {
  return words.size() == 1 &&
         std::ranges::any_of(flag.usual | std::views::split(' '),
                             [&](const auto& each) { return std::ranges::equal(each, words[0]); });
}

std::string first_name(const SglangFlag& flag) {
  const std::string_view names = flag.name;
  return std::string(names.substr(0, names.find(',')));
}

}  // namespace

std::span<const SglangFlag> idle_sglang_flags() { return kFlags; }

void add_idle_sglang_flags(CLI::App& app) {
  for (const SglangFlag& flag : kFlags) {
    const auto tell = [&flag, &app](const std::string& words) {
      fmt::print(stderr, "{}: {}{} has no effect: {}\n", app.get_name(), first_name(flag), words,
                 flag.reason);
    };
    if (flag.takes == kNothing) {
      app.add_flag_callback(
          flag.name, [tell] { tell(""); }, "no effect here");
      continue;
    }
    CLI::Option* option = app.add_option_function<std::vector<std::string>>(
        flag.name,
        [tell, &flag](const std::vector<std::string>& words) {
          if (!is_usual(flag, words)) tell(fmt::format(" {}", fmt::join(words, " ")));
        },
        "no effect here");
    option->expected(1, flag.takes == kWord ? 1 : 1 << 16);
    if (flag.takes == kWord) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

}  // namespace slime::cli
