#pragma once

/// `slime bench train-step`: one training step on made-up tokens, beside
/// bench/cpu/train_step_transformers.py.

#include <span>
#include <string>

namespace slime::cli {

/// Prints one JSON line: tokens per second, GFLOP/s and the seconds of each phase, best of several
/// steps. Returns the exit code.
int bench_train_step(std::span<const std::string> arguments);

}  // namespace slime::cli
