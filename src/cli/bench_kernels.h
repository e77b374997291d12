#pragma once

/// `slime bench kernels`: on the CPU the matrix products of one model, beside ATen's; with
/// `--device cuda` each kernel of engine and trainer (cli/bench_gpu_kernels.h).

#include <span>
#include <string>

namespace slime::cli {

/// One JSON line per product and number of rows: GFLOP/s and GB/s of weights, ours and at::mm's in
/// float32. Returns the exit code.
int bench_kernels(std::span<const std::string> arguments);

}  // namespace slime::cli
