#pragma once

/// `slime bench start-SIZE`: from the start of the process to the first token, with made-up weights
/// in the shape qwen3-SIZE of bench/gpu/workloads.json.

#include <span>
#include <string>

namespace slime::cli {

/// Prints a JSON line with the seconds of each part. Returns the exit code.
int bench_start(std::span<const std::string> arguments);

}  // namespace slime::cli
