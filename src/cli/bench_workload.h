#pragma once

/// `slime bench WORKLOAD...`: the workloads of bench/gpu/workloads.json on this machine's GPU.

#include <span>
#include <string>

namespace slime::cli {

/// One JSON line per workload. Returns the exit code.
int bench_workload(std::span<const std::string> arguments);

}  // namespace slime::cli
