#pragma once

/// Condition for steps in training arithmetic on a GPU (docs/decisions/0168-training-arithmetic.md).

#include "engine/step_runner.h"
#include "kernels/gpu/gpu.h"
#include "model/network.h"

namespace slime::engine {

/// True for networks without windows, adapters and states, in a precision and with heads and experts that the kernels
/// have, whose cache is in the precision of the activations.
bool has_exact_steps(const kernels::Gpu& gpu, model::Network& network,
                     const StepRunnerConfig& config);

/// Of all its chunks.
inline StepArithmetic arithmetic_of(std::span<const Chunk> chunks) {
  return chunks.empty() ? StepArithmetic::kFast : chunks.front().arithmetic;
}

}  // namespace slime::engine
