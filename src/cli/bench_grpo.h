#pragma once

/// `slime bench grpo-step`: one whole step of the loop on made-up prompts, beside
/// bench/cpu/grpo_step_peer.py.

#include <span>
#include <string>

namespace slime::cli {

/// Prints one JSON line: seconds of the step and of its phases, the best of several steps. Returns
/// the exit code.
int bench_grpo_step(std::span<const std::string> arguments);

}  // namespace slime::cli
