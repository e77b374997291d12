#include "cli/bench.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "cli/bench_algo.h"
#include "cli/bench_attention.h"
#include "cli/bench_command.h"
#include "cli/bench_data.h"
#include "cli/bench_engine.h"
#include "cli/bench_gpu_train.h"
#include "cli/bench_grpo.h"
#include "cli/bench_kernels.h"
#include "cli/bench_start.h"
#include "cli/bench_train.h"
#include "cli/bench_turns.h"
#include "cli/bench_workload.h"
#include "cli/commands.h"

namespace slime::cli {
namespace {

constexpr auto kMeasurements = std::to_array<Command>({
    {"algo", "loss and gradient on a million tokens, beside the speed of memory", bench_algo},
    {"data", "loading a prompt file: rows per second, memory", bench_data},
    {"decode-attention", "attention of one layer in a decode step, beside the speed of memory",
     bench_decode_attention},
    {"engine", "generation: tokens per second, step times, rates", bench_engine},
    {"grpo-step", "one step of the loop: generate, train, hand the weights over", bench_grpo_step},
    {"hand-over", "new weights to the engine of the same GPU", bench_hand_over},
    {"kernels", "products of the decoder; --device cuda: every kernel of a GPU", bench_kernels},
    {"sleep-wake", "keys and values give their memory back and take it again", bench_sleep_wake},
    {"train-step", "one training step on made-up tokens: tokens per second, phase times",
     bench_train_step},
});

/// Measurements in the shape qwen3-SIZE of bench/gpu/workloads.json.
struct Family {
  std::string_view prefix;
  std::string_view summary;
  int (*run)(std::span<const std::string>);
};
constexpr auto kFamilies = std::to_array<Family>({
    {"train-step-",
     "a training step on the GPU; train-step-4b-recompute and -selective keep fewer activations",
     bench_gpu_train},
    {"start-", "from the start of the process to the first token on the GPU", bench_start},
    {"first-step-", "the command `slime train` to the end of its first optimizer step",
     bench_first_step},
    {"grpo-", "steps of the command `slime train --device cuda`", bench_grpo_command},
});

}  // namespace

int bench(std::span<const std::string> arguments) {
  const std::string name = arguments.empty() ? "" : arguments.front();
  for (const Command& measurement : kMeasurements) {
    if (name == measurement.name) return measurement.run(arguments.subspan(1));
  }
  const bool asks = name == "--help" || name == "-h";
  for (const Family& family : kFamilies) {
    if (name.starts_with(family.prefix)) return family.run(arguments);
  }
  if (!name.empty() && !name.starts_with('-')) return bench_workload(arguments);
  std::FILE* out = asks ? stdout : stderr;
  fmt::print(out, "Usage: slime bench NAME [OPTIONS]\n\n");
  for (const Command& measurement : kMeasurements) {
    fmt::print(out, "  {:<17} {}\n", measurement.name, measurement.summary);
  }
  fmt::print(out, "  {:<17} {}\n", "WORKLOAD...",
             "a workload of bench/gpu/workloads.json on the GPU: offline-4b, decode-8b-b32, ...");
  for (const Family& family : kFamilies)
    fmt::print(out, "  {:<17} {}\n", fmt::format("{}SIZE", family.prefix), family.summary);
  return asks ? 0 : 2;
}

}  // namespace slime::cli
