#pragma once

/// `slime bench first-step-SIZE` and `slime bench grpo-SIZE`: the command `slime train --device
/// cuda` as users type it, in a process of its own, on a made-up model directory in the shape
/// qwen3-SIZE of bench/gpu/workloads.json.

#include <span>
#include <string>

namespace slime::cli {

/// Seconds from the start of the command to the end of its first optimizer step, files in the page
/// cache. Prints a JSON line, returns the exit code.
int bench_first_step(std::span<const std::string> arguments);

/// A GRPO step: tokens per second of generation and of training, seconds of the phases.
int bench_grpo_command(std::span<const std::string> arguments);

}  // namespace slime::cli
