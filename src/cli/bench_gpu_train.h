#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime bench train-step-SIZE [OPTIONS]`: a GRPO step on the GPU in the shape qwen3-SIZE of
/// bench/gpu/workloads.json; `-recompute` after the size computes all activations again,
/// `-selective` those that cost little.
int bench_gpu_train(std::span<const std::string> arguments);

}  // namespace slime::cli
